"""What a decision is made of: the circumstances beside the cluster, and the writes it asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.budget import HANGS, keep_counted
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.ranks.stack_dumps import tell_places
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    PeerOrder,
    SnapshotOrder,
    TraceOrder,
)
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Candidate, Incident, Plan, Requeues
from holdfast_sidecar.records.steps import SlowCause, SlownessReport
from holdfast_sidecar.store.protocol import CURRENT, Section

# For how long nodes have been slow without a break, as one leader saw it, and what that cost.
#
# A new leader begins anew, and so does one that was stopped for a while: nobody is replaced for
# what was not seen.

CARRIED = frozenset(
    {
        SlowCause.GPU_CLOCK,
        SlowCause.GPU_POWER,
        SlowCause.GPU_LINK,
        SlowCause.GPU_SHARED,
        SlowCause.COMPUTE,
        SlowCause.CPU_CONTENTION,
        SlowCause.MEMORY_PRESSURE,
        SlowCause.LINK,
    }
)
"""What stays behind with a node. Not among them: what the job brings along wherever it runs (uneven
work, stages, the collector, compiling, its loader), a quota that the user set, storage that the
nodes share, and what nobody can explain."""

LATE_S = 10.0
"""A leader looks three times a second; one that did not for so long was stopped, or another led."""


@dataclass(frozen=True)
class SlowSince:
    """A node's slowness, as far as it was judged."""

    lasted_s: float = 0.0
    """Of the steps in which it was slow, from end to end: what the job did between them, an
    evaluation or a pause of an hour, is no slowness, and a standing that nobody renews grows no
    older."""
    lost_s: float = 0.0
    """What the job lost by it meanwhile."""
    judgements: int = 0

    @property
    def gain(self) -> float:
        """So much faster the job would have been without it, over all of it."""
        rest_s = self.lasted_s - self.lost_s
        return self.lost_s / rest_s if rest_s > 0 else 0.0

    def longer(self, seen_s: float, gain: float) -> SlowSince:
        """One judgement later. Faster by `gain` is shorter by gain / (1 + gain)."""
        lost_s = seen_s * gain / (1 + gain)
        return SlowSince(self.lasted_s + seen_s, self.lost_s + lost_s, self.judgements + 1)


class Endurance:
    """Follows standings of one leader's own."""

    def __init__(self) -> None:
        self._spells: dict[str, SlowSince] = {}
        self._led = ""
        self._asked_s = float("-inf")
        self._judged_unix_s = 0.0
        self._watched_s = 0.0

    def follow(
        self, standing: SlownessReport | None, led: str, now_s: float
    ) -> Mapping[str, SlowSince]:
        """Node -> its spell so far. `led`: whose lease, which attempt; another one begins anew."""
        if led != self._led or now_s - self._asked_s > LATE_S:
            self._spells, self._judged_unix_s = {}, 0.0
        self._led, self._asked_s = led, now_s
        if standing is None:
            self._spells = {}
        elif standing.at_unix_s != self._judged_unix_s:
            self._judged_unix_s = standing.at_unix_s
            seen_s = max(0.0, standing.watched_s - self._watched_s)
            self._watched_s = standing.watched_s
            self._spells = self._longer(_gains(standing), seen_s)
        return dict(self._spells)

    def _longer(self, gains: Mapping[str, float], seen_s: float) -> dict[str, SlowSince]:
        """Before the first judgement it was not watched."""
        known = self._spells
        return {
            node: known[node].longer(seen_s, gain) if node in known else SlowSince(judgements=1)
            for node, gain in gains.items()
        }


def _gains(standing: SlownessReport) -> dict[str, float]:
    """Slow node -> what the job would gain without the worst of what stays with it."""
    gains: dict[str, float] = {}
    for one in standing.slow:
        if one.node and one.cause in CARRIED:
            gains[one.node] = max(one.gain, gains.get(one.node, 0.0))
    return gains


_ORDERS: Mapping[Section, type[object]] = {
    Section.CHECKPOINT: CheckpointOrder,
    Section.SNAPSHOT: SnapshotOrder,
    Section.PEER: PeerOrder,
    Section.TRACE: TraceOrder,
}


@dataclass(frozen=True)
class Write:
    """A guarded write: done only if the field still holds `expected`."""

    section: Section
    field: str
    value: str | None
    expected: str | None


@dataclass(frozen=True)
class DecisionContext:
    """What a decision needs beside the cluster. Times: `now` monotonic, `now_unix_s` the wall clock
    that all leaders share (see stopwatch.SharedClock)."""

    epoch: int
    now: float
    now_unix_s: float
    settings: Settings
    plan_seen: Plan | None = None
    """The newest plan this leader ever saw: an emptied server gets it back."""
    recalled: Incident | None = None
    """The plan's incident as this node's disk has it, where the store has lost it."""
    requeued: Requeues = field(default_factory=Requeues)
    """How often the job was ended to be started again, as this node's disk has it."""
    settled: bool = True
    """False for a moment after leadership or server changed: reports may still be on their way."""
    out_of_patience: bool = False
    """It changed so long ago that who has not reported since counts as gone."""
    forming_for_s: float = 0.0
    """How long enough nodes for a first attempt have been waiting."""
    preempted_for_s: float = 0.0
    """How long members of the attempt have been asked to go."""
    evidence_for_s: float = 0.0
    """How long the plan has been in `evidence`."""
    ended_for_s: float = 0.0
    """How long the plan has been `ended`, as this leader saw it."""
    awaiting_for_s: float = 0.0
    """The same since the last pause was over: what had to wait for it has its time from then on."""
    candidates: tuple[Candidate, ...] | None = None
    """Checkpoints to resume from, newest first; None when not looked up yet."""
    unresumable: str = ""
    """Why none of the checkpoints there are can be resumed from; empty: nothing is in the way."""
    new_identifier: str = ""
    """A fresh identifier for an incident, should one be needed."""
    leader: str = ""
    """The candidate that decides."""
    slow: Mapping[str, SlowSince] = field(default_factory=dict)
    """Nodes that have been slow without a break, as this leader saw it."""
    start_s: float | None = None
    """How long the run's first start took; None: this leader did not see it."""
    majority: bool = False
    """Behind Sentinel more than half of the attempt's nodes must be here to decide about others."""


@dataclass(frozen=True)
class Decision:
    """Writes to do in this order (a refused one ends the round), and what to look up first."""

    writes: tuple[Write, ...] = ()
    needs_candidates: bool = False
    world_size: int = 0
    """Of the attempt that the candidates are needed for."""
    has_snapshot: bool = False
    """They only come after a snapshot: as last seen will do."""
    waiting: str = ""
    """Why nothing happens yet, for people."""
    abandoned: tuple[Candidate, ...] = ()
    """Checkpoints that the job goes back behind: storage must know before the plan is written."""
    abandoned_for: str = ""
    """Why, for people and for the verdict beside the files."""
    forming: bool = False
    """Enough nodes are here for a first attempt: the last call is running."""


def write_plan(cluster: Cluster, plan: Plan) -> Decision:
    """Replace the plan that was read."""
    return Decision((Write(Section.PLAN, CURRENT, encode(plan), cluster.plan_text),))


def amend(cluster: Cluster, incident: Incident) -> Write:
    """Replace an incident by what is known of it now."""
    known = cluster.incident_texts.get(incident.identifier)
    told = keep_counted(cluster.incidents.get(incident.identifier), incident)
    return Write(Section.INCIDENTS, incident.identifier, encode(told), known)


def stopped_over(incident: Incident, why: str) -> Incident:
    """The incident of which the job was not restarted, with the reason."""
    return dataclasses.replace(incident, decided="stop", stopped_for=why, reopened_unix_s=0.0)


def stopped(plan: Plan, circumstances: DecisionContext, exit_code: int, message: str) -> Plan:
    """The plan, ended for good."""
    return dataclasses.replace(
        plan, state="stopped", epoch=circumstances.epoch, exit_code=exit_code, message=message
    )


def applied(cluster: Cluster, writes: Sequence[Write]) -> Cluster:
    """The cluster with the plan, the incidents and the orders as these writes leave them."""
    incidents = dict(cluster.incidents)
    changed: dict[str, Any] = {}
    for write in writes:
        if write.section is Section.PLAN and write.value is not None:
            changed["plan"] = decode(Plan, write.value)
        incident = decode(Incident, write.value or "")
        if write.section is Section.INCIDENTS and incident is not None:
            incidents[write.field] = incident
        if (kind := _ORDERS.get(write.section)) is not None and write.field == CURRENT:
            name = write.section.value
            changed |= {name: decode(kind, write.value or ""), f"{name}_text": write.value}
    return dataclasses.replace(cluster, incidents=incidents, **changed) if writes else cluster


# What the nodes kept of an incident, as the leader writes it into the record.


def with_keepers(cluster: Cluster, incident: Incident) -> Incident:
    """The incident with the nodes that have evidence of it on disk by now."""
    kept = {n.node for n in cluster.nodes.values() if n.evidence_for == incident.identifier}
    return dataclasses.replace(incident, kept_by=sorted(kept | set(incident.kept_by)))


def with_places(cluster: Cluster, incident: Incident) -> Incident:
    """A hang with one more reason: where the culprit stood, and where those that waited."""
    if incident.cause not in HANGS:
        return incident
    places = {
        int(rank): where
        for node in cluster.nodes.values()
        if node.evidence_for == incident.identifier
        for rank, where in node.where_ranks_stood.items()
        if rank.isdecimal()
    }
    told = tell_places(places, incident.culprit_ranks)
    if not told or told in incident.evidence:
        return incident
    return dataclasses.replace(incident, evidence=[*incident.evidence, told])


def note_bundles(cluster: Cluster) -> tuple[Write, ...]:
    """Incidents that are over, with where each node packed what it kept."""
    return tuple(
        amend(
            cluster,
            dataclasses.replace(incident, bundles=bundles, kept_by=_keepers(incident, bundles)),
        )
        for incident in cluster.incidents.values()
        if incident.recovered_unix_s
        and (bundles := _bundles(cluster, incident)) != incident.bundles
    )


def _keepers(incident: Incident, bundles: Mapping[str, str]) -> list[str]:
    """After a crash nobody waited for evidence: who kept some is known by what it packed."""
    return sorted({*incident.kept_by, *bundles})


def _bundles(cluster: Cluster, incident: Incident) -> dict[str, str]:
    packed = {
        node.node: node.bundles[incident.identifier]
        for node in cluster.nodes.values()
        if incident.identifier in node.bundles
    }
    return {**incident.bundles, **packed}
