"""Trouble in which the job is saved while it still can be: which, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Plan

FORETELLING = frozenset(
    {
        Kind.MEMORY_PRESSURE,
        Kind.DISK_FULL,
        Kind.HOST_MEMORY_ERRORS,
        Kind.HOST_HOT,
        Kind.ECC_STORM,
        Kind.GPU_MEMORY_FAILING,
    }
)
"""What may soon end ranks or keep them from being saved, and leaves time to save them now.
Not what keeps a checkpoint itself from being written: storage that stalls, tasks that hang."""

SURELY_FORETELLING = {Kind.LINK_DEGRADED: 0.8, Kind.LINK_FLAPPING: 0.8}
"""Links, from so sure on: one that flaps again and again, or whose errors grow for minutes, is
often lost soon, and takes the attempt with it. One flap is nobody's business."""

STORAGE = "checkpoint"
"""The room that checkpoints fill: another one is no help against that."""

AGAIN_S = 3600.0
"""For so long the same trouble is not saved for again, whether it lasts or comes and goes: pressure
that hovers at its threshold would make a series of checkpoints. An hour is the most that anybody
should lose to a wrong estimate (`checkpoint.most_every_s`), and what lasts for weeks, as a memory
bank without spare rows, costs one checkpoint an hour even of a job that saves seldom by itself."""

SHARED_S = 600.0
"""A save that another node's trouble of the same kind asked for will do for so long: nodes of a job
do the same work, so that what presses on one soon presses on all, and a hundred of them would have
it saved each minute. One that came to nothing is tried again after as long: storage may be back."""

Grade = tuple[int, float]


@dataclass(frozen=True)
class PrecautionState:
    """When a trouble was last saved for, and how bad it was then."""

    at_unix_s: float
    grade: Grade


class Precautions:
    """For what the job was saved; of what this leader does not know the ledger tells when."""

    def __init__(self) -> None:
        self._answers: dict[str, PrecautionState] = {}

    def wanted(self, cluster: Cluster, plan: Plan, now_unix_s: float) -> Finding | None:
        """What a checkpoint should be made for now; None: there is nothing.

        What was complete after the onset will do, whatever it was made for. Nothing waits for it:
        an attempt that hardware ends is ended at once.
        """
        entries = [entry for entry in cluster.ledger.values() if entry.attempt == plan.attempt]
        saved_unix_s = max((entry.at_unix_s for entry in entries), default=0.0)
        found = sorted(_foretelling(cluster, plan), key=name_of)
        for finding in found:
            if _trouble(finding) not in self._answers:
                self._learn(finding, cluster, saved_unix_s, now_unix_s)
        return next((f for f in found if self._is_wanted(f, saved_unix_s, now_unix_s)), None)

    def ordered(self, finding: Finding, now_unix_s: float) -> None:
        """A checkpoint is on its way for it."""
        self._answers[_trouble(finding)] = PrecautionState(now_unix_s, _grade(finding))

    def forget(self, order: CheckpointOrder) -> None:
        """It came to nothing, and should be tried again at once."""
        for name in order.answers:
            self._answers.pop(_without_onset(name), None)

    def _learn(
        self, finding: Finding, cluster: Cluster, saved_unix_s: float, now_unix_s: float
    ) -> None:
        """When it was saved for before this leader led, or by the way; as bad as it is now."""
        trouble, order = _trouble(finding), cluster.checkpoint
        known = [
            entry.at_unix_s
            for entry in cluster.ledger.values()
            if trouble in map(_without_onset, entry.answers)
        ]
        if finding.since_unix_s <= saved_unix_s:
            known.append(saved_unix_s)
        if not known and order is not None and not order.came_too_late:
            known = [now_unix_s for name in order.answers if _without_onset(name) == trouble]
        if known:
            self._answers[trouble] = PrecautionState(max(known), _grade(finding))

    def _is_wanted(self, finding: Finding, saved_unix_s: float, now_unix_s: float) -> bool:
        before = self._answers.get(_trouble(finding))
        if before is None:
            return not self._is_shared(finding, now_unix_s)
        if _grade(finding) > before.grade:
            return True
        rest_s = AGAIN_S if before.at_unix_s <= saved_unix_s else SHARED_S
        if now_unix_s - before.at_unix_s < rest_s:
            return False
        return finding.since_unix_s > saved_unix_s or now_unix_s - saved_unix_s >= AGAIN_S

    def _is_shared(self, finding: Finding, now_unix_s: float) -> bool:
        """Whether another node had the job saved for the same a moment ago."""
        return any(
            trouble.startswith(f"{_of_any_node(finding)}:")
            and now_unix_s - answer.at_unix_s < SHARED_S
            for trouble, answer in self._answers.items()
        )


def _foretelling(cluster: Cluster, plan: Plan) -> Iterator[Finding]:
    for member in plan.members:
        node = cluster.nodes.get(member.node)
        if node is not None and cluster.is_alive(member.node):
            yield from filter(foretells, node.findings)


def foretells(finding: Finding) -> bool:
    """Whether the job should be saved because of it."""
    surely_from = SURELY_FORETELLING.get(finding.kind)
    if surely_from is not None:
        return finding.confidence >= surely_from
    return finding.kind in FORETELLING and finding.what != STORAGE


def name_of(finding: Finding) -> str:
    """The same for as long as the trouble lasts; another onset has another name."""
    return f"{_trouble(finding)}:{finding.since_unix_s:.0f}"


def _trouble(finding: Finding) -> str:
    """The name without its onset."""
    return f"{_of_any_node(finding)}:{finding.node}"


def _of_any_node(finding: Finding) -> str:
    return finding.kind.value + (f"-{finding.what}" if finding.what else "")


def _without_onset(name: str) -> str:
    return name.rpartition(":")[0]


def _grade(finding: Finding) -> Grade:
    """How bad it is: it may need more by and by, or be surer to come true."""
    return finding.remedy.severity, finding.confidence
