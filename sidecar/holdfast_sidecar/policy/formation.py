"""Who is in the next attempt, under which ranks: survivors keep theirs, a spare fills gaps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import NodesSettings, Settings
from holdfast_sidecar.policy.blame import agent_of
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.quarantine import find, is_kept_out
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import natural_order
from holdfast_sidecar.records.plan import DONE, HookRun, Member, Plan, Quarantine
from holdfast_sidecar.records.reports import AgentReport, GateVerdict


@dataclass(frozen=True)
class NotFormed:
    """No attempt can be formed yet, and why."""

    reason: str


@dataclass(frozen=True)
class Mismatch:
    """These nodes can never run together."""

    message: str


@dataclass(frozen=True)
class Formation:
    """The members of the next attempt, by node rank."""

    members: tuple[Member, ...]

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(member.slots for member in self.members)


def form(
    joining: Sequence[AgentReport],
    previous: Sequence[Member],
    waited_s: float,
) -> Formation | NotFormed | Mismatch:
    """Form an attempt out of the nodes that wait.

    joining: living agents that want in. previous: members of the last attempt (empty at first).
    waited_s: how long enough nodes have been here (last call, first attempt only).
    """
    if not joining:
        return NotFormed("no node has joined yet")
    survivors = [agent for agent in joining if _holds_a_place(agent, previous)]
    joining = alike(of_one_launch(joining, survivors), survivors)
    wanted = joining[0]
    if (mismatch := find_mismatch(joining)) is not None:
        return mismatch
    if len(joining) < wanted.min_nodes:
        return NotFormed(f"{len(joining)} of {wanted.min_nodes} nodes are here")
    if not previous and len(joining) < wanted.max_nodes and waited_s < wanted.last_call_s:
        return NotFormed(f"last call: {len(joining)} of at most {wanted.max_nodes} nodes are here")
    return Formation(_number(_seat(joining, previous, wanted.max_nodes)))


def alike(agents: Sequence[AgentReport], members: Sequence[AgentReport]) -> Sequence[AgentReport]:
    """Those that can run together with these members (all, without any): who comes to a running
    job with other versions, or is of another launch, is left waiting, and does not end it."""
    kinds = {_kind(member) for member in members}
    return [agent for agent in agents if not kinds or _kind(agent) in kinds]


def _kind(agent: AgentReport) -> tuple[str, str, tuple[str, str]]:
    return agent.version, agent.torch_version, agent.launch_key


def of_one_launch(
    joining: Sequence[AgentReport], survivors: Sequence[AgentReport]
) -> Sequence[AgentReport]:
    """Those of the survivors' launch; without survivors of the launch that most are of. Two that
    have the same name by chance never train together, nor do two of one user's experiments."""
    launches = Counter(agent.launch_key for agent in survivors or joining)
    most = max(launches, key=lambda launch: (launches[launch], launch))
    return [agent for agent in joining if agent.launch_key == most]


def find_mismatch(joining: Iterable[AgentReport]) -> Mismatch | None:
    """Different versions of Holdfast or torch don't run together: say who has what."""
    agents = list(joining)
    for what, versions in (
        ("Holdfast", {a.node: a.version for a in agents}),
        ("torch", {a.node: a.torch_version for a in agents}),
    ):
        if len(set(versions.values())) > 1:
            each = ", ".join(f"{node} has {v or 'unknown'}" for node, v in sorted(versions.items()))
            return Mismatch(f"the nodes have different versions of {what}: {each}")
    return None


def _holds_a_place(agent: AgentReport, members: Sequence[Member]) -> bool:
    return any((m.node, m.incarnation) == (agent.node, agent.incarnation) for m in members)


def _seat(
    joining: Sequence[AgentReport], previous: Sequence[Member], most: int
) -> list[AgentReport]:
    """The agents in order of node rank; vacant seats go to the others, in order of name."""
    by_node = {agent.node: agent for agent in joining}
    seats = [by_node.get(m.node) for m in sorted(previous, key=lambda m: m.node_rank)]
    seated = {agent.node for agent in seats if agent is not None}
    others = sorted(
        (a for a in joining if a.node not in seated), key=lambda a: natural_order(a.node)
    )
    filled: list[AgentReport] = []
    for seat in seats:
        if seat is not None:
            filled.append(seat)
        elif others:
            filled.append(others.pop(0))
    return (filled + others)[:most]


def _number(agents: Sequence[AgentReport]) -> tuple[Member, ...]:
    members: list[Member] = []
    first_rank = 0
    for node_rank, agent in enumerate(agents):
        members.append(
            Member(agent.node, agent.incarnation, node_rank, first_rank, agent.slots, agent.role)
        )
        first_rank += agent.slots
    return tuple(members)


# Which nodes an attempt may take in, by what the health gate on each of them said.
#
# A verdict that does not come is not held against a node: it is let in after a while, and told of.

VERDICT = "verdict"
"""Which check it is whose want is told, where the whole verdict is wanting."""


def mode_of_gate(settings: Settings) -> str:
    """What may be done about an unfit node: the leader's word."""
    return settings.gate.mode or settings.sidecar.mode


def verdict_on(agent: AgentReport, cluster: Cluster) -> GateVerdict | None:
    """What this node's sidecar says of it; None where none says anything (any more).

    A sidecar of an earlier launcher spoke of another time.
    """
    node = cluster.nodes.get(agent.node)
    if node is None or node.gate is None or agent.node in cluster.unattended:
        return None
    is_of_this = node.launcher_pid in (0, agent.pid)
    return node.gate if is_of_this and node.gate.state != "unknown" else None


def awaited(agent: AgentReport, cluster: Cluster) -> str:
    """What is waited for before this node is taken in, as a key; empty: nothing.

    After a blame only a verdict counts that was made when its attempt was over.
    """
    if not agent.awaits_gate:
        return ""
    verdict, blamed_for = verdict_on(agent, cluster), _blamed_for(agent, cluster)
    if verdict is not None and (verdict.state == "unfit" or verdict.after == blamed_for):
        return ""
    if verdict is not None and not blamed_for:
        return ""
    return f"{agent.incarnation} {blamed_for}"


def judge_admission(cluster: Cluster, waited_s: Mapping[str, float], settings: Settings) -> Cluster:
    """The cluster with who is unfit, who is still waited for, and who comes in unchecked.

    waited_s: node -> how long what `awaited` names has been wanting.
    """
    if mode_of_gate(settings) != "act":
        return cluster
    waiting = cluster.waiting()
    patience_s = settings.gate.wait_s
    if settings.gate.test_after_blame and _blames_somebody(cluster):
        patience_s += settings.gate.test_timeout_s
    silent = [agent.node for agent in waiting if awaited(agent, cluster)]
    unheard = frozenset(node for node in silent if waited_s.get(node, 0.0) < patience_s)
    running = [agent for agent in cluster.agents.values() if agent.state == "running"]
    mute = {agent.node for agent in running if _has_no_word(agent, cluster)}
    return dataclasses.replace(
        cluster,
        unfit=_unfit(waiting, cluster),
        lame=_lame(waiting, cluster),
        never_again=frozenset(_unfit(running, cluster)) - _lame(running, cluster),
        unheard=unheard,
        unchecked=frozenset({*silent, *mute} - unheard),
    )


def find_unchecked(cluster: Cluster, now_unix_s: float) -> Iterator[Finding]:
    """Nodes that are taken in though nobody knows how they are."""
    for node in sorted(cluster.unchecked):
        if cluster.is_alive(node):
            told = "its sidecar gave no verdict in time: the node is let in unchecked"
            yield Finding(Kind.GATE_BLIND, node, now_unix_s, 0.9, evidence=[told], what=VERDICT)


def awaits_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    """Whose health check is waited for, of these; empty: nobody's."""
    outside = cluster.outside()
    unheard = (agent for agent in waiting if agent.node in cluster.unheard)
    names = sorted(agent.node for agent in unheard if not is_kept_out(agent, outside))
    return f"waiting for the health check of {', '.join(names)}" if names else ""


def unfit_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    """Who of these is kept outside as unfit and why, to be set behind other words."""
    named = sorted(agent.node for agent in waiting if agent.node in cluster.unfit)
    told = ", ".join(f"{node} ({cluster.unfit[node]})" for node in named)
    return f"; unfit: {told}" if told else ""


def with_unfit(
    formed: Formation | NotFormed | Mismatch, cluster: Cluster, waiting: Sequence[AgentReport]
) -> Formation | NotFormed | Mismatch:
    """What is waited for, with who is here and may not come in."""
    if not isinstance(formed, NotFormed):
        return formed
    words = unfit_words(cluster, waiting) + _kept_out_words(cluster, waiting)
    return NotFormed(formed.reason + words)


def _kept_out_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    outside = cluster.outside()
    kept = {agent.node: find(agent, outside) for agent in waiting}
    told = ", ".join(
        f"{node} ({'; '.join(one.evidence[:1])})"
        for node, one in sorted(kept.items())
        if one is not None and node not in cluster.unfit
    )
    return f"; kept outside: {told}" if told else ""


def _unfit(waiting: Iterable[AgentReport], cluster: Cluster) -> dict[str, str]:
    said = {agent.node: verdict_on(agent, cluster) for agent in waiting}
    return {
        node: "; ".join(verdict.reasons[:1]) or "no reason given"
        for node, verdict in said.items()
        if verdict is not None and verdict.state == "unfit"
    }


def _lame(waiting: Iterable[AgentReport], cluster: Cluster) -> frozenset[str]:
    said = {agent.node: verdict_on(agent, cluster) for agent in waiting}
    return frozenset(
        node
        for node, verdict in said.items()
        if verdict is not None and verdict.state == "unfit" and verdict.works
    )


def _has_no_word(agent: AgentReport, cluster: Cluster) -> bool:
    is_watched = agent.node not in cluster.unattended
    return agent.awaits_gate and is_watched and verdict_on(agent, cluster) is None


def _blamed_for(agent: AgentReport, cluster: Cluster) -> str:
    plan = cluster.plan
    is_blamed = plan is not None and plan.state == "ended" and plan.culprit_node == agent.node
    return plan.incident if plan is not None and is_blamed else ""


def _blames_somebody(cluster: Cluster) -> bool:
    return any(_blamed_for(agent, cluster) for agent in cluster.waiting())


# Who waits, and could take a node's place. Pure.


def find_spares(cluster: Cluster, plan: Plan, node: str) -> list[AgentReport]:
    """Nodes that wait, could sit in this one's place, and that their health gates find fit."""
    seated = [agent for m in plan.members if (agent := agent_of(cluster, m)) is not None]
    wanted = next((agent for agent in seated if agent.node == node), None)
    members = {member.node for member in plan.members}
    if wanted is None:
        return []
    waiting = [
        agent
        for agent in alike(cluster.joining(), seated)
        if agent.node not in members and agent.slots == wanted.slots and _has_passed(agent, cluster)
    ]
    return sorted(waiting, key=lambda agent: natural_order(agent.node))


def _has_passed(agent: AgentReport, cluster: Cluster) -> bool:
    """A stopgap or an unchecked node may be worse than one that is slow."""
    if agent.node in cluster.unfit or agent.node in cluster.unchecked:
        return False
    verdict = verdict_on(agent, cluster)
    return verdict is None or verdict.state == "fit"


# Which of the user's commands are run for nodes that are kept outside or come back, by whom, once.
#
# The plan says who runs what, so that a new leader neither runs it again nor forgets it; whoever
# runs it takes the command itself from its own settings. Pure.

QUARANTINE, RETURN = "quarantine", "return"
"""Events."""


def with_hooks(plan: Plan, cluster: Cluster, circumstances: DecisionContext) -> Plan:
    """The plan with what is to be run for who went outside and came back since, and what became of
    what was run."""
    settings, leader = circumstances.settings.nodes, circumstances.leader
    if not (plan.hooks or settings.on_quarantine or settings.on_return):
        return plan
    outside = {one.part: one for one in plan.outside}
    # Who goes outside again while its return is still being told is told of after that.
    known = {run.part for run in plan.hooks}
    runs = [
        changed
        for run in plan.hooks
        if (changed := _followed(run, run.part in outside, cluster, settings, leader)) is not None
    ]
    new = [_begun(one, settings, leader) for part, one in outside.items() if part not in known]
    hooks = [*runs, *new]
    return plan if hooks == plan.hooks else dataclasses.replace(plan, hooks=hooks)


def _begun(one: Quarantine, settings: NodesSettings, leader: str) -> HookRun:
    return HookRun(
        one.part,
        one.node,
        one.since_unix_s,
        QUARANTINE,
        leader if settings.on_quarantine else "",
        reason="; ".join(one.evidence[:1]),
        gpu=one.gpu,
        remedy=one.remedy,
    )


def _followed(
    run: HookRun, is_outside: bool, cluster: Cluster, settings: NodesSettings, leader: str
) -> HookRun | None:
    """The run as it is now; None: nothing is left to do or to know of it."""
    run = _with_outcome(run, cluster, leader)
    is_over = not run.by or bool(run.outcome)
    if not is_over or (run.event == QUARANTINE and is_outside):
        return run
    if run.event == RETURN:
        # Whoever was to know that it is back does not: that is told until it goes again.
        return run if run.outcome not in ("", DONE) and not is_outside else None
    if not settings.on_return:
        return None
    return dataclasses.replace(run, event=RETURN, by=leader, outcome="")


def _with_outcome(run: HookRun, cluster: Cluster, leader: str) -> HookRun:
    """With what became of it; where its sidecar is gone nobody knows, and it is run again."""
    if not run.by or run.outcome:
        return run
    runner = next((node for node in cluster.nodes.values() if node.candidate == run.by), None)
    if runner is not None and (outcome := runner.hooks.get(run.key)):
        return dataclasses.replace(run, outcome=outcome)
    is_gone = runner is None or runner.node in cluster.unattended
    return dataclasses.replace(run, by=leader) if is_gone and run.by != leader else run
