"""How a job stands, judged from two readings of the store. Pure; `status` prints it.

A heartbeat proves life only by moving, so a single reading can't tell the living from the dead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast_sidecar.incidents.explain import name_cause, whom
from holdfast_sidecar.performance.summary import heard, staying_by
from holdfast_sidecar.policy import precaution
from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.policy.checkpoint_order import can_be_saved
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.policy.replacement import STRAGGLER
from holdfast_sidecar.policy.requests import too_few_without
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SnapshotOrder
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import (
    TERMINAL,
    HookRun,
    Incident,
    Member,
    PauseWindow,
    Plan,
    Quarantine,
)
from holdfast_sidecar.records.reports import AgentReport, GateVerdict, NodeReport, RankReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import CURRENT, Section, View

T = TypeVar("T")


@dataclass(frozen=True)
class NodeStatus:
    """One node. `launcher` and `sidecar` are None when there is none, else whether it is alive."""

    node: str
    node_rank: int | None
    """None: a spare, or waiting to be taken in."""
    state: str
    """What its launcher last reported; empty without one."""
    launcher: bool | None
    sidecar: bool | None
    mode: str = ""
    metrics_address: str = ""
    unserved: str = ""
    """Why its sidecar serves neither metrics nor a page; empty: it does."""
    ranks: list[RankReport] = field(default_factory=list)
    left_for: str = ""
    """Signal for which its launcher left; empty: none."""
    gate: GateVerdict | None = None
    """What its health gate says; None: nothing."""

    @property
    def is_lost(self) -> bool:
        """Whether it has no place, and went without a word."""
        went = self.launcher is False and self.state != "left" and not self.sidecar
        return self.node_rank is None and went

    @property
    def waits_unfit(self) -> bool:
        """Whether it has no place, and its gate would not let it have one."""
        is_unfit = self.gate is not None and self.gate.state == "unfit"
        return self.node_rank is None and is_unfit and bool(self.sidecar)


PLANNED_PHASES = frozenset(
    {"starting", "restoring", "compiling", "saving", "evaluating", "finished"}
)
"""Phases that may last, and in which no step is to be expected."""

SILENT_FOR_S = 20.0
"""Below this a script may do many a thing between two steps that it says nothing of."""

SILENT_STEPS = 20.0
"""...and slow steps vary: so many times their usual length is no variation."""

ADVICE = frozenset({Kind.NO_SNAPSHOTS, Kind.NO_PEER_COPY, Kind.NOT_RESTORABLE, Kind.GATE_BLIND})
"""Findings about what could be better: the job is well all the same."""

TOLD_ONLY = frozenset({Kind.GPU_FAULT, Kind.LINK_DOWN})
"""Findings that are no trouble while their remedy is none: an XID that asks for nothing, a lost
link that nothing of the job goes over."""


@dataclass(frozen=True)
class SnapshotStatus:
    """Snapshots of the attempt under way."""

    every_steps: int
    """0: none are taken."""
    reason: str
    """Why none; else empty."""
    newest_step: int
    """The newest that all ranks are known to have; -1: none yet."""
    size_bytes: int
    """Of the slots and copies of all nodes."""


@dataclass(frozen=True)
class JobStatus:
    """A job. `trouble` says in one line each why it is not healthy."""

    job: str
    state: str
    """`waiting` before a run's first attempt and while the leader can't open the next one yet, else
    the plan's state; `ended` is but the moment between two attempts."""
    attempt: int | None
    restarts: int
    message: str
    leader: str
    epoch: int
    waiting: str
    """Why the leader takes no step yet; empty while it need not wait."""
    world_size: int
    nodes: list[NodeStatus]
    findings: list[Finding]
    order: CheckpointOrder | None
    """A coordinated checkpoint on its way."""
    checkpoint: LedgerEntry | None
    """The newest complete one."""
    incident: Incident | None
    """The newest."""
    trouble: list[str]
    snapshots: SnapshotStatus | None = None
    """None while nobody takes any: no state was registered, or it is too early."""
    pause: PauseWindow | None = None
    """Nothing is done about faults until it is over."""
    outside: list[Quarantine] = field(default_factory=list)
    hooks: list[HookRun] = field(default_factory=list)
    """What was run for nodes that are outside, or came back."""
    """Nodes that are not taken in."""
    suggestion: str = ""
    """What a person should do about a fault that the mode leaves to them."""
    exit_code: int = 0
    """With which the launchers leave, once it is stopped."""
    stepless_since_unix_s: float = 0.0
    """When the attempt was opened in which no rank has made a step yet; 0: one has, or it is not
    known."""
    slow: SlownessReport | None = None
    """Who is slow, as the leader last said; None: it has said nothing, or the job is over."""
    staying: dict[str, str] = field(default_factory=dict)
    """Who is slow -> why its node is not replaced, where policy would have it."""

    @property
    def is_healthy(self) -> bool:
        """Running well, or ended well."""
        return not self.trouble

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen in this job."""
        return self.state in TERMINAL


def exists(view: View) -> bool:
    """Whether the store knows this job at all."""
    return any(view.section(section) for section in (Section.AGENTS, Section.NODES, Section.PLAN))


def is_settled(before: View, after: View) -> bool:
    """Whether a later reading would tell no more: every heartbeat moved, or none will."""
    if _is_over(_plan(after)):
        return all(_is_alive(before, after, Section.AGENTS, node) for node in newcomers(after))
    return all(
        _is_alive(before, after, section, node)
        for section in (Section.AGENTS, Section.NODES)
        for node in after.section(section)
    )


def newcomers(view: View) -> list[str]:
    """Nodes whose launchers reported, dead or alive, that they wait to begin a run after the one
    that is over."""
    plan = _plan(view)
    if plan is None or plan.state not in TERMINAL:
        return []
    members = {member.incarnation for member in plan.members}
    return [
        agent.node
        for agent in _records(view, Section.AGENTS, AgentReport)
        if agent.state == "joining"
        and agent.attempt >= plan.attempt
        and agent.incarnation not in members
    ]


def has_ended(before: View, after: View) -> bool:
    """Whether the job's run is over and nobody alive waits to begin the next."""
    return _is_over(_plan(after)) and not _begins_anew(before, after)


def judge(job: str, before: View, after: View) -> JobStatus:
    """How the job stands at the later of two readings, a few heartbeats apart."""
    plan = _plan(after)
    if _begins_anew(before, after):
        plan = None
    plan = plan or attached_plan(after)
    nodes = _nodes(plan, before, after)
    if plan is None:
        nodes = [node for node in nodes if node.launcher or node.sidecar] or nodes
    living = {node.node for node in nodes if node.sidecar}
    reports = _records(after, Section.NODES, NodeReport)
    findings = [one for report in reports if report.node in living for one in report.findings]
    order = decode(CheckpointOrder, after.section(Section.CHECKPOINT).get(CURRENT, ""))
    waiting = next((r.waiting for r in reports if r.candidate == after.lease.candidate), "")
    slow = _slow(plan, reports, after.lease.candidate)
    lasting = [
        one
        for one in findings
        if not _may_pass(one, slow) and not is_doubt(one, _silent_s(one, reports))
    ]
    return JobStatus(
        job=job,
        state=_state(plan, waiting),
        attempt=plan.attempt if plan else None,
        restarts=plan.restarts if plan else 0,
        message=plan.said if plan else "",
        leader=after.lease.candidate,
        epoch=after.lease.epoch,
        waiting=waiting,
        world_size=plan.world_size if plan else 0,
        nodes=nodes,
        findings=[] if _is_over(plan) else findings,
        order=order if order and order.state in ("armed", "writing") else None,
        checkpoint=newest_checkpoint(after),
        incident=newest_incident(after),
        trouble=list(_trouble(plan, nodes, lasting, waiting, after)),
        snapshots=None if plan is None or _is_over(plan) else _snapshots(plan, reports, after),
        pause=None if plan is None or _is_over(plan) else plan.pause,
        outside=[] if plan is None else list(plan.outside),
        hooks=[] if plan is None else [run for run in plan.hooks if run.by],
        suggestion="" if plan is None or _is_over(plan) else _suggestion(plan, after),
        exit_code=0 if plan is None else plan.exit_code,
        stepless_since_unix_s=0.0 if plan is None else _stepless_since_unix_s(plan, nodes, after),
        slow=slow,
        staying=staying_by(reports, after.lease.candidate) if slow is not None else {},
    )


def _slow(plan: Plan | None, reports: list[NodeReport], leader: str) -> SlownessReport | None:
    """Of the attempt under way: what slowed an earlier one may be gone."""
    found = None if plan is None or _is_over(plan) else heard(reports, leader)
    return (
        found if found is not None and plan is not None and found.attempt == plan.attempt else None
    )


def _may_pass(finding: Finding, slow: SlownessReport | None) -> bool:
    """Whether it is about somebody slow who may be quick again in a moment: it is shown, marked as
    such, and nobody need get up for it."""
    if finding.kind is not Kind.STRAGGLER or slow is None:
        return False
    about = [one for one in slow.slow if (one.node, one.ranks) == (finding.node, finding.ranks)]
    return bool(about) and not any(one.is_persistent for one in about)


def is_doubt(finding: Finding, silent_s: float) -> bool:
    """Whether it is a short silence alone, on which nothing would be done: a script that evaluates
    says nothing either. It is shown, and no trouble until it has lasted."""
    return finding.kind is Kind.STALL and not finding.acts and silent_s < SILENT_FOR_S


def _silent_s(finding: Finding, reports: Iterable[NodeReport]) -> float:
    """By the clock of the node that found it; infinite where its rank is not told of."""
    ages_s = [
        rank.phase_age_s
        for report in reports
        if report.node == finding.node
        for rank in report.ranks
        if rank.rank in finding.ranks
    ]
    return max(ages_s, default=math.inf)


def newest_checkpoint(view: View) -> LedgerEntry | None:
    """The newest checkpoint that may be resumed from, by the attempt and step that wrote it."""
    entries = _records(view, Section.LEDGER, LedgerEntry)
    usable = [entry for entry in entries if entry.verdict != "poisoned"]
    return max(usable, key=lambda entry: (entry.attempt, entry.epoch, entry.step), default=None)


def newest_incident(view: View) -> Incident | None:
    """The incident detected last."""
    return max(incidents(view), key=lambda one: one.detected_unix_s, default=None)


def incidents(view: View) -> list[Incident]:
    """All incidents the store still holds, oldest first."""
    found = _records(view, Section.INCIDENTS, Incident)
    return sorted(found, key=lambda one: one.detected_unix_s)


def _suggestion(plan: Plan, view: View) -> str:
    is_open = (
        one
        for one in incidents(view)
        if one.decided == "suggest" and one.attempt == plan.attempt
        if not one.recovered_unix_s and not one.ended_unix_s
    )
    found = next(is_open, None)
    if found is None:
        return ""
    who = whom(found.culprit_node, found.culprit_ranks)
    cluster, node = parse_cluster(view), found.culprit_node
    blames_node = bool(node) and (bool(found.remedy) or found.cause == STRAGGLER)
    can_go = blames_node and not too_few_without(cluster, plan, node)
    without = f" --without {node}" if can_go else ""
    unsaved = "" if can_be_saved(found, cluster, plan) else " --no-save"
    return f"`holdfast restart{unsaved}{without}`, for the {name_cause(found.cause)} of {who}"


def _snapshots(plan: Plan, reports: list[NodeReport], view: View) -> SnapshotStatus | None:
    order = decode(SnapshotOrder, view.section(Section.SNAPSHOT).get(CURRENT, ""))
    if order is None or order.attempt != plan.attempt:
        return None
    told = [
        report.snapshot
        for report in reports
        if report.snapshot is not None and report.snapshot.attempt == plan.attempt
    ]
    return SnapshotStatus(
        order.every_steps,
        order.reason,
        newest_step=max((report.newest for report in told), default=-1),
        size_bytes=sum(report.slot_bytes for report in told),
    )


def _plan(view: View) -> Plan | None:
    return decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))


def _is_over(plan: Plan | None) -> bool:
    return plan is not None and plan.state in TERMINAL


def _begins_anew(before: View, after: View) -> bool:
    return any(_is_alive(before, after, Section.AGENTS, node) for node in newcomers(after))


ATTACHED = "attached"
"""State of a job that somebody else launched."""


def attached_plan(view: View) -> Plan | None:
    """What stands in a plan's place in a job that somebody else launched; None in one of ours."""
    reports = _records(view, Section.NODES, NodeReport)
    if not reports or view.section(Section.AGENTS) or not all(r.attached for r in reports):
        return None
    attempt = max(report.attempt for report in reports)
    members = [
        Member(report.node, report.incarnation, number, 0, len(report.ranks))
        for number, report in enumerate(sorted(reports, key=lambda report: report.node))
        if report.attempt == attempt
    ]
    ranks = sum(member.slots for member in members)
    return Plan(attempt, 0, ATTACHED, members=members, world_size=ranks)


def _state(plan: Plan | None, waiting: str) -> str:
    if plan is None or (plan.state == "ended" and waiting):
        return "waiting"
    return plan.state


def _trouble(
    plan: Plan | None,
    nodes: list[NodeStatus],
    findings: list[Finding],
    waiting: str,
    view: View,
) -> Iterator[str]:
    if plan is None:
        yield _waits(waiting) if waiting else "no attempt has been formed yet"
        return
    if plan.state == "stopped" and plan.exit_code != 0:
        yield f"stopped with exit code {plan.exit_code}: {plan.message or plan.cause}"
    if plan.state in TERMINAL:
        return
    if plan.state in ("running", ATTACHED):
        yield from _silence(nodes)
    yield from _under_way(plan, waiting, view)
    if not view.lease.candidate:
        yield "nobody leads"
    for node in nodes:
        yield from _node_trouble(node)
    yield from ills([one for one in findings if not is_worth_knowing(one)])


def ills(findings: list[Finding]) -> Iterator[str]:
    """Findings in a line each: every kind once for each node, with the GPUs that it is about."""
    alike: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for one in findings:
        alike[one.kind.value, one.node].append(one)
    for (kind, where), ones in alike.items():
        which = list(dict.fromkeys(_which(one) for one in ones if one.gpu))
        told = [one for one in which if not any(o.endswith(f", {one}") for o in which)]
        times = f" x{len(ones)}" if len(ones) > 1 else ""
        yield f"{kind}{times} on {where}" + (f": {'; '.join(told)}" if told else "")


def _which(finding: Finding) -> str:
    """`xid 31, GPU 3`; by its number alone where the driver told no XID."""
    xid = finding.what.partition(" on ")[0] if finding.what.startswith("xid ") else ""
    return ", ".join(filter(None, [xid, finding.named_gpu]))


def is_worth_knowing(finding: Finding) -> bool:
    """And no more: nothing needs to be done about it."""
    if finding.kind is Kind.LINK_FLAPPING:
        return not precaution.foretells(finding)
    is_told = finding.kind in TOLD_ONLY and finding.remedy is Remedy.NONE
    return is_told or finding.kind in ADVICE


def _under_way(plan: Plan, waiting: str, view: View) -> Iterator[str]:
    """What an end or a restart still waits for."""
    if plan.state == "ended" and waiting:
        yield f"{_waits(waiting)} (attempt {plan.attempt} ended: {plan.cause or 'unknown'})"
    elif plan.state not in ("running", ATTACHED):
        yield f"attempt {plan.attempt} is ending: {plan.cause or plan.state}"
    elif (incident := _answered(plan, view)) is not None:
        who = whom(incident.culprit_node, incident.culprit_ranks, incident.cause)
        yield (
            f"attempt {plan.attempt} is starting after the {name_cause(incident.cause)} of {who}: "
            "not every rank has made a step yet"
        )


def _silence(nodes: list[NodeStatus]) -> Iterator[str]:
    """Every rank stands still for far longer than a step takes, and nobody has found a stall yet:
    in the first steps of an attempt that may take minutes."""
    ranks = [rank for rank in _ranks_of(nodes) if rank.alive and not rank.has_finished]
    usual_s = max((rank.step_s for rank in ranks), default=0.0)
    if not usual_s or any(rank.busy or rank.phase in PLANNED_PHASES for rank in ranks):
        return
    silent_s = min(rank.phase_age_s for rank in ranks)
    if silent_s > max(SILENT_FOR_S, SILENT_STEPS * usual_s):
        yield f"no step for {span(silent_s)}, usually {span(usual_s)}"


def _stepless_since_unix_s(plan: Plan, nodes: list[NodeStatus], view: View) -> float:
    if plan.state != "running" or any(r.step > r.resumed_step for r in _ranks_of(nodes)):
        return 0.0
    newest = newest_incident(view)
    if newest is not None and newest.detected_unix_s >= plan.began_unix_s:
        return newest.reopened_unix_s if newest.attempt < plan.attempt else 0.0
    return 0.0 if plan.restarts else plan.began_unix_s


def _ranks_of(nodes: list[NodeStatus]) -> list[RankReport]:
    """Of members only."""
    return [rank for node in nodes if node.node_rank is not None for rank in node.ranks]


def _answered(plan: Plan, view: View) -> Incident | None:
    """The fault of this run for which the attempt was opened, until it is over."""
    newest = newest_incident(view)
    if newest is None or newest.decided != "restart" or newest.recovered_unix_s:
        return None
    is_of_run = newest.attempt < plan.attempt and newest.detected_unix_s >= plan.began_unix_s
    # A script that is known to have made none is not waited for.
    is_waited_for = newest.step_reached > 0 and newest.cause not in PLANNED
    return newest if is_of_run and is_waited_for else None


def _waits(why: str) -> str:
    """The leader's words; some of them say by themselves that it waits."""
    return why if why.startswith("waiting") else f"waiting: {why}"


def _node_trouble(node: NodeStatus) -> Iterator[str]:
    """Members only: a node that was lost and replaced is shown, but the job is well without it."""
    if node.node_rank is None:
        return
    where = f"node {node.node}"
    if node.launcher is False and node.left_for:
        yield f"{where}: its launcher received {node.left_for} and left"
    elif node.launcher is False:
        yield f"{where}: its launcher's heartbeat stands still"
    if node.sidecar is False:
        yield f"{where}: its sidecar's heartbeat stands still"
    if node.launcher is None and node.sidecar is None:
        yield f"{where}: a member of the attempt, but nobody there reports"
    for rank in node.ranks:
        if not rank.alive and not rank.has_finished:
            yield f"rank {rank.rank} on {node.node} is gone"


def _nodes(plan: Plan | None, before: View, after: View) -> list[NodeStatus]:
    members = {member.node: member for member in plan.members} if plan else {}
    names = {*members, *after.section(Section.AGENTS), *after.section(Section.NODES)}
    nodes = [_node(name, members.get(name), plan, before, after) for name in names]
    return sorted(nodes, key=lambda node: (node.node_rank is None, node.node_rank or 0, node.node))


def _node(
    name: str, member: Member | None, plan: Plan | None, before: View, after: View
) -> NodeStatus:
    agent = decode(AgentReport, after.section(Section.AGENTS).get(name, ""))
    sidecar = decode(NodeReport, after.section(Section.NODES).get(name, ""))
    is_current = sidecar is not None and plan is not None and sidecar.attempt == plan.attempt
    ranks = sidecar.ranks if sidecar is not None and is_current else []
    return NodeStatus(
        node=name,
        node_rank=None if member is None else member.node_rank,
        state="" if agent is None else agent.state,
        launcher=None if agent is None else _is_alive(before, after, Section.AGENTS, name),
        sidecar=None if sidecar is None else _is_alive(before, after, Section.NODES, name),
        mode="" if sidecar is None else sidecar.mode,
        metrics_address="" if sidecar is None else sidecar.metrics_address,
        unserved="" if sidecar is None else sidecar.unserved,
        ranks=sorted(ranks, key=lambda rank: rank.rank),
        left_for="" if agent is None else agent.left_for,
        gate=None if sidecar is None else sidecar.gate,
    )


def _is_alive(before: View, after: View, section: Section, node: str) -> bool:
    kind = AgentReport if section is Section.AGENTS else NodeReport
    now = decode(kind, after.section(section).get(node, ""))
    then = decode(kind, before.section(section).get(node, ""))
    if not isinstance(now, (AgentReport, NodeReport)):
        return False
    if not isinstance(then, (AgentReport, NodeReport)):
        return True
    return (now.incarnation, now.beat) != (then.incarnation, then.beat)


def _records(view: View, section: Section, kind: type[T]) -> list[T]:
    decoded = (decode(kind, text) for text in view.section(section).values())
    return [record for record in decoded if record is not None]
