"""What is asked of a Grafana, and what it says: the door that the real client and a test's twin
have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.incidents.explain import IncidentStory, name_cause, sum_up, tell
from holdfast_sidecar.records.plan import Incident

Json = dict[str, Any]


class GrafanaError(BadInput):
    """Grafana said no, or nothing; one line that says what was asked, why not, and what helps."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        """HTTP's; 0: there was no answer."""


@dataclass(frozen=True)
class DataSource:
    """A data source."""

    uid: str
    name: str
    kind: str
    is_default: bool = False


@dataclass(frozen=True)
class Folder:
    """Where dashboards lie."""

    uid: str
    title: str


@dataclass(frozen=True)
class StoredDashboard:
    """A dashboard as Grafana has it."""

    model: Json
    folder_uid: str
    """Empty: at the top, in no folder."""
    may_save: bool = True
    is_provisioned: bool = False
    """It comes from a file of that Grafana's, and can't be changed from outside."""

    @property
    def version(self) -> int:
        """How often it was saved."""
        return int(self.model.get("version", 0))


class DashboardServer(Protocol):
    """A Grafana's dashboards. Everything raises Refused; None is what isn't there."""

    def version(self) -> str:
        """Such as `11.2.0`; empty where it isn't told."""
        ...

    def sources(self) -> list[DataSource] | None:
        """All data sources; None where the token may not list them."""
        ...

    def folder(self, uid: str) -> Folder | None:
        """The folder of this uid."""
        ...

    def create_folder(self, folder: Folder) -> None:
        """A new one, at the top."""
        ...

    def remove_folder(self, uid: str) -> None:
        """With what is in it."""
        ...

    def dashboard(self, uid: str) -> StoredDashboard | None:
        """The dashboard of this uid."""
        ...

    def save(self, model: Json, folder_uid: str, message: str, overwrite: bool) -> None:
        """Create or change it; without `overwrite` only if nobody saved it since it was read."""
        ...

    def remove_dashboard(self, uid: str) -> None:
        """Take it away."""
        ...


class AnnotationServer(Protocol):
    """A Grafana's annotations. Everything raises Refused."""

    def annotations(self, tags: Sequence[str]) -> list[Json]:
        """Those that have all of these tags, as Grafana tells them."""
        ...

    def add(self, mark: Json) -> None:
        """A new one: time, timeEnd (ms), tags, text."""
        ...

    def change(self, identifier: int, mark: Json) -> None:
        """The same for one that is there."""
        ...


# Incidents as Grafana's region annotations, and which of them have to be told. Pure.


TAG = "holdfast"


@dataclass(frozen=True)
class AnnotationChange:
    """An annotation to add, or (with a number) to change."""

    mark: Json
    number: int | None = None


def tags_of(run: str) -> list[str]:
    """By which a run's annotations are found; dashboards show those with a chosen run's name."""
    return [TAG, run]


def marks(run: str, incidents: Iterable[Incident]) -> list[Json]:
    """One for each incident: from its first sign to its end as far as it has one."""
    return [_mark(run, tell(incident)) for incident in incidents]


def plan_marks(wanted: Sequence[Json], there: Sequence[Json]) -> list[AnnotationChange]:
    """What is not yet there, or not so: a second time there is nothing to do."""
    known: dict[str, Json] = {}
    for annotation in there:
        for tag in annotation.get("tags") or []:
            known.setdefault(tag, annotation)
    changes = []
    for mark in wanted:
        found = known.get(_key(mark))
        if found is None:
            changes.append(AnnotationChange(mark))
        elif not _is_told(mark, found):
            changes.append(AnnotationChange(mark, int(found["id"])))
    return changes


def _mark(run: str, story: IncidentStory) -> Json:
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
