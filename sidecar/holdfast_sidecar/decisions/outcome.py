"""What a decision is made of: the circumstances beside the cluster, and the writes it asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.counting import keep_counted
from holdfast_sidecar.decisions.endurance import Spell
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    PeerOrder,
    SnapshotOrder,
    TraceOrder,
)
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Candidate, Incident, Plan, Requeues
from holdfast_sidecar.store.protocol import CURRENT, Section

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
class Circumstances:
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
    slow: Mapping[str, Spell] = field(default_factory=dict)
    """Nodes that have been slow without a break, as this leader saw it."""
    start_s: float | None = None
    """How long the run's first start took; None: this leader did not see it."""
    majority: bool = False
    """Behind Sentinel more than half of the attempt's nodes must be here to decide about others."""


@dataclass(frozen=True)
class Outcome:
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


def write_plan(cluster: Cluster, plan: Plan) -> Outcome:
    """Replace the plan that was read."""
    return Outcome((Write(Section.PLAN, CURRENT, encode(plan), cluster.plan_text),))


def amend(cluster: Cluster, incident: Incident) -> Write:
    """Replace an incident by what is known of it now."""
    known = cluster.incident_texts.get(incident.identifier)
    told = keep_counted(cluster.incidents.get(incident.identifier), incident)
    return Write(Section.INCIDENTS, incident.identifier, encode(told), known)


def stopped_over(incident: Incident, why: str) -> Incident:
    """The incident of which the job was not restarted, with the reason."""
    return dataclasses.replace(incident, decided="stop", stopped_for=why, reopened_unix_s=0.0)


def stopped(plan: Plan, circumstances: Circumstances, exit_code: int, message: str) -> Plan:
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
