"""The story of an incident: what happened when, who is to blame, what was done, what it cost. Pure.

Times are the leader's wall clock, except the first: that is the node's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_sidecar.coordination.reports import Incident


@dataclass(frozen=True)
class Chapter:
    """One thing that happened; `after_s` counts from the first sign."""

    at_unix_s: float
    after_s: float
    what: str


@dataclass(frozen=True)
class Story:
    """An incident, told. Costs are None as long as they are not known."""

    identifier: str
    attempt: int
    cause: str
    culprit_node: str
    culprit_ranks: list[int]
    confidence: float
    chapters: list[Chapter]
    decided: str
    is_over: bool
    lost_s: float | None
    """From the first sign until every rank was stepping again."""
    lost_steps: int | None
    """Steps that were done and had to be done again."""
    resumed_step: int | None
    signature: str
    reasons: list[str] = field(default_factory=list)
    """What the judgement rests on."""
    kept_by: list[str] = field(default_factory=list)
    """Nodes that kept evidence before anything was ended."""


def lost_s(incident: Incident) -> float | None:
    """From the first sign until every rank was stepping again; None: not known yet."""
    recovered = incident.recovered_unix_s
    return recovered - _start(incident) if recovered else None


def tell(incident: Incident) -> Story:
    """The story of this incident as far as it has gone."""
    recovered = bool(incident.recovered_unix_s)
    start = _start(incident)
    return Story(
        identifier=incident.identifier,
        attempt=incident.attempt,
        cause=incident.cause,
        culprit_node=incident.culprit_node,
        culprit_ranks=list(incident.culprit_ranks),
        confidence=incident.confidence,
        chapters=[Chapter(at, at - start, what) for at, what in _events(incident)],
        decided=incident.decided,
        is_over=recovered or incident.decided == "stop",
        lost_s=lost_s(incident),
        lost_steps=max(0, incident.step_reached - incident.step_resumed) if recovered else None,
        resumed_step=incident.step_resumed if recovered else None,
        signature=incident.signature,
        reasons=[*incident.evidence, *_numbers(incident)],
        kept_by=sorted(incident.kept_by),
    )


def _start(incident: Incident) -> float:
    """The first sign; a node's clock may be ahead of the leader's, the story then starts there."""
    since, detected = incident.since_unix_s, incident.detected_unix_s
    return min(since, detected) if since else detected


def _events(incident: Incident) -> Iterator[tuple[float, str]]:
    who = whom(incident.culprit_node, incident.culprit_ranks)
    cause = describe_cause(incident.cause)
    yield _start(incident), f"first sign of trouble, after step {incident.step_reached}"
    yield incident.detected_unix_s, f"declared: {cause}; {who} ({incident.confidence:.0%} sure)"
    if incident.ended_unix_s:
        yield incident.ended_unix_s, f"attempt {incident.attempt} ended"
    if incident.reopened_unix_s:
        yield incident.reopened_unix_s, f"decided: {incident.decided}; the next attempt was opened"
    elif incident.decided:
        yield incident.ended_unix_s or incident.detected_unix_s, f"decided: {incident.decided}"
    if incident.recovered_unix_s:
        resumed = f"from step {incident.step_resumed}" if incident.step_resumed else "from nothing"
        yield incident.recovered_unix_s, f"every rank was stepping again, {resumed}"


def _numbers(incident: Incident) -> Iterator[str]:
    if incident.onset_step >= 0:
        yield (
            f"its losses were not finite from step {incident.onset_step} on, so that only"
            " a checkpoint of before could be gone back to"
        )


def describe_cause(cause: str) -> str:
    """The cause in words; one that is new to us is shown as it is."""
    return _CAUSES.get(cause, cause)


def whom(node: str, ranks: list[int]) -> str:
    """`rank 3 on node b`, as far as it is known."""
    if not ranks:
        return f"node {node}" if node else "culprit unknown"
    listed = ", ".join(str(rank) for rank in ranks)
    return f"rank{'s' * (len(ranks) > 1)} {listed}" + (f" on node {node}" if node else "")


_CAUSES = {
    "crash": "a rank's process ended badly",
    "hang": "a rank stands still while its peers wait for it",
    "stall": "a rank has been silent for too long",
    "node_lost": "a node is gone",
    "node_left": "a node left on its own account",
    "agent_restarted": "a launcher came back as a new process",
    "grow": "the job makes room for nodes that joined",
}
