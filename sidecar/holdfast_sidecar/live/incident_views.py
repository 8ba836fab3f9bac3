"""Incidents as a live view shows them: the verdict, and the story in lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import Story, sum_up, tell
from holdfast_sidecar.live.view import INCIDENTS, IncidentView
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident

REASONS, EVIDENCE = 6, 300
"""Reasons that are told, and characters of each: a traceback belongs to `holdfast explain`."""


def incidents_of(incidents: Iterable[Incident]) -> list[IncidentView]:
    """The newest, the newest first."""
    newest = sorted(incidents, key=lambda one: (one.detected_unix_s, one.identifier), reverse=True)
    return [_view(incident, tell(incident)) for incident in newest[:INCIDENTS]]


def _view(incident: Incident, story: Story) -> IncidentView:
    return IncidentView(
        incident.identifier,
        incident.cause,
        node=incident.culprit_node,
        ranks=list(incident.culprit_ranks),
        since_unix_s=story.chapters[0].at_unix_s,
        detected_unix_s=incident.detected_unix_s,
        recovered_unix_s=incident.recovered_unix_s,
        decided=incident.decided,
        title=sum_up(story),
        story=list(_lines(story)),
        is_over=story.is_over,
        lost_s=story.lost_s,
        lost_steps=story.lost_steps,
    )


def _lines(story: Story) -> Iterator[str]:
    for chapter in story.chapters:
        yield f"+{span(chapter.after_s)}: {chapter.what}"
    reasons = story.reasons or [story.signature]
    for reason in [reason for reason in reasons if reason][:REASONS]:
        yield f"because {_shortened(reason)}"
    for step in advise(story):
        yield f"next: {_shortened(step)}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EVIDENCE else f"{line[: EVIDENCE - 1]}…"
