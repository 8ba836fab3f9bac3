"""Incidents as Grafana's region annotations, and which of them have to be told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from holdfast_sidecar.incidents.explain import Story, name_cause, sum_up, tell
from holdfast_sidecar.records.plan import Incident

Json = dict[str, Any]

TAG = "holdfast"


@dataclass(frozen=True)
class Change:
    """An annotation to add, or (with a number) to change."""

    mark: Json
    number: int | None = None


def tags_of(run: str) -> list[str]:
    """By which a run's annotations are found; dashboards show those with a chosen run's name."""
    return [TAG, run]


def marks(run: str, incidents: Iterable[Incident]) -> list[Json]:
    """One for each incident: from its first sign to its end as far as it has one."""
    return [_mark(run, tell(incident)) for incident in incidents]


def plan_marks(wanted: Sequence[Json], there: Sequence[Json]) -> list[Change]:
    """What is not yet there, or not so: a second time there is nothing to do."""
    known: dict[str, Json] = {}
    for annotation in there:
        for tag in annotation.get("tags") or []:
            known.setdefault(tag, annotation)
    changes = []
    for mark in wanted:
        found = known.get(_key(mark))
        if found is None:
            changes.append(Change(mark))
        elif not _is_told(mark, found):
            changes.append(Change(mark, int(found["id"])))
    return changes


def _mark(run: str, story: Story) -> Json:
    began = min(chapter.at_unix_s for chapter in story.chapters)
    ended = max(chapter.at_unix_s for chapter in story.chapters) if story.is_over else began
    title = f"{name_cause(story.cause)} ({story.decided or 'nothing decided yet'})"
    return {
        "time": round(began * 1000),
        "timeEnd": round(ended * 1000),
        "tags": [*tags_of(run), "incident", story.cause, f"incident:{story.identifier}"],
        "text": f"<b>{escape(title)}</b><br>{escape(sum_up(story))}",
    }


def _key(mark: Json) -> str:
    return str(mark["tags"][-1])


def _is_told(mark: Json, found: Json) -> bool:
    # Grafana leaves timeEnd out, or makes it 0, of an annotation that has no length.
    end = found.get("timeEnd") or found.get("time")
    return (
        found.get("time") == mark["time"]
        and end == mark["timeEnd"]
        and set(found.get("tags") or []) == set(mark["tags"])
        and found.get("text") == mark["text"]
    )
