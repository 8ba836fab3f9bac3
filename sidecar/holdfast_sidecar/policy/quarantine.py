"""Nodes that are kept outside for a while: which machine is meant, how long, and never too many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from holdfast_sidecar.records.findings import Remedy, parse_remedy
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Plan, Quarantine, Request
from holdfast_sidecar.records.reports import AgentReport, NodeReport

SURELY_LATER_S = 60.0
"""A check so much later on the node's clock was made after the leader's word: a node whose clock is
further off is unfit anyway."""

AT_LEAST = 2
"""Nodes that may be outside in however small a job: two may be ill at once, and that enough are
left is seen to anyway."""


def part_of(agent: AgentReport, agents: Iterable[AgentReport]) -> str:
    """What a node is known by when it comes back under another name: its machine's id.

    Containers of one image and clones of one virtual machine have one id; then its name counts too.
    """
    machines = [other.machine for other in agents if other.node != agent.node]
    is_own = bool(agent.machine) and agent.machine not in machines
    return agent.machine if is_own else f"{agent.machine}/{agent.node}"


def is_kept_out(agent: AgentReport, outside: Iterable[Quarantine]) -> bool:
    """Whether this node is meant by one of these."""
    return find(agent, outside) is not None


def find(agent: AgentReport, outside: Iterable[Quarantine]) -> Quarantine | None:
    """The quarantine that means this node, under whatever name it comes."""
    names = (agent.machine, f"{agent.machine}/{agent.node}")
    return next((one for one in outside if one.part and one.part in names), None)


def lasting(
    outside: Sequence[Quarantine],
    now_unix_s: float,
    agents: Mapping[str, AgentReport] | None = None,
    nodes: Mapping[str, NodeReport] | None = None,
) -> list[Quarantine]:
    """Those that are not over yet: by their time, or by what their nodes tell of themselves."""
    told = {
        one.part: nodes[agent.node]
        for agent in (agents or {}).values()
        if nodes and agent.node in nodes and (one := find(agent, outside)) is not None
    }
    return [
        one
        for one in outside
        if now_unix_s < one.until_unix_s
        and not (one.part in told and is_mended(one, told[one.part]))
    ]


def is_mended(one: Quarantine, node: NodeReport) -> bool:
    """Whether the machine had what it needs, as its own sidecar tells.

    A reboot resets its GPUs, too; what has to be replaced no start of the machine mends.
    """
    is_rebooted = bool(one.boot and node.boot) and one.boot != node.boot
    if one.remedy == Remedy.REBOOT_NODE.value:
        return is_rebooted
    return one.remedy == Remedy.RESET_GPU.value and (is_rebooted or _is_reset(one, node))


def ends_with(one: Quarantine, now_unix_s: float) -> str:
    """What lets the node in before its time, for people; empty: nothing that it could tell of."""
    if one.remedy == Remedy.REBOOT_NODE.value:
        return "it was rebooted"
    if one.remedy != Remedy.RESET_GPU.value:
        return ""
    wait_s = checked_by_unix_s(one) - now_unix_s
    return "its GPU was reset" + (f" (checked within {span(wait_s)})" if wait_s > 0 else "")


def checked_by_unix_s(one: Quarantine) -> float:
    """From when on any check of the node's counts; the leader's clock."""
    return one.since_unix_s + SURELY_LATER_S


def _is_reset(one: Quarantine, node: NodeReport) -> bool:
    """Whether a check after the blame found all its GPUs fit, and nothing is found of this one."""
    gate = node.gate
    is_after = gate is not None and (
        gate.after == one.incident or gate.checked_unix_s > checked_by_unix_s(one)
    )
    is_ill = any(f.gpu == one.gpu and f.remedy.blames_hardware for f in node.findings)
    return gate is not None and gate.state == "fit" and is_after and not is_ill


def let_in(outside: Iterable[Quarantine], node: str) -> list[Quarantine]:
    """Without those of this node."""
    return [one for one in outside if one.node != node]


def add(outside: Iterable[Quarantine], new: Quarantine) -> list[Quarantine]:
    """With one more; an earlier one of the same part is replaced, unless a person drained it."""
    others = list(outside)
    if not new.is_drained and any(one.is_drained and one.part == new.part for one in others):
        return others
    return [*(one for one in others if one.part != new.part), new]


def is_too_much(
    outside: Iterable[Quarantine], new: Quarantine, agents: Iterable[AgentReport], share: float
) -> str:
    """Why nobody new is put outside, by how many are there for no person's word; empty: one may."""
    outside = list(outside)
    others = sum(one.part != new.part and not one.by for one in outside)
    names = {agent.node for agent in agents} | {one.node for one in outside}
    most = max(AT_LEAST, int(share * len(names)))
    if others < most:
        return ""
    return f"{others} of {len(names)} nodes are outside already, and more share their trouble"


def bearable(
    outside: Sequence[Quarantine], waiting: Sequence[AgentReport], least: int
) -> list[Quarantine]:
    """As many of these as leave the minimum of nodes among those that wait; who is outside for
    nothing but blames is lifted first, then who needs least; of them the oldest, for it has had
    most time to be looked at. Where lifting is no help, all stay."""
    kept = list(outside)
    if len(waiting) < least:
        return kept
    liftable = [one for one in outside if not one.is_drained]
    for one in sorted(liftable, key=lambda one: (_severity(one), one.since_unix_s)):
        if sum(not is_kept_out(agent, kept) for agent in waiting) >= least:
            break
        if any(is_kept_out(agent, [one]) for agent in waiting):
            kept.remove(one)
    return kept


def _severity(one: Quarantine) -> int:
    """How bad it is to use it all the same."""
    if not one.gpu and one.remedy == Remedy.REPLACE.value:
        return 0  # a lemon: it may work for days
    return parse_remedy(one.remedy).severity


# Nodes that a person takes out of a job, and lets in again.
#
# A drain is the person's own word: it is not lifted for want of nodes, as a quarantine is. It takes
# effect when an attempt is opened, and what runs there now runs on.

DRAIN, RETURN = "drain", "return"
"""Kinds of request."""

KINDS = frozenset({DRAIN, RETURN})


def drained(request: Request, agents: Iterable[AgentReport]) -> Quarantine | None:
    """What a request for a drain asks for; None where nobody knows the node."""
    agents = list(agents)
    agent = next((agent for agent in agents if agent.node == request.node), None)
    if agent is None:
        return None
    return Quarantine(
        part_of(agent, agents),
        agent.node,
        request.at_unix_s,
        request.at_unix_s + request.for_s,
        [f"drained by {request.by}{': ' if request.reason else ''}{request.reason}"],
        request.by,
        is_drained=True,
    )


def as_asked(
    outside: Iterable[Quarantine], requests: Iterable[Request], agents: Iterable[AgentReport]
) -> list[Quarantine]:
    """As was asked for since, and is not in any plan yet: with those that are drained, and without
    those that were returned."""
    kept, agents = list(outside), list(agents)
    for request in sorted(requests, key=lambda one: (one.at_unix_s, one.identifier)):
        if request.kind == RETURN and not request.refused:
            kept = let_in(kept, request.node)
        if request.kind == DRAIN and not request.refused:
            new = drained(request, agents)
            kept = kept if new is None else add(kept, new)
    return kept


def changed(plan: Plan, request: Request, agents: Iterable[AgentReport]) -> Plan:
    """The plan as this request wants it."""
    return dataclasses.replace(plan, outside=as_asked(plan.outside, [request], agents))
