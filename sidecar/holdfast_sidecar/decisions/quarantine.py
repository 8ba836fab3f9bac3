"""Nodes that are kept outside for a while: which machine is meant, how long, and never too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast_sidecar.coordination.reports import AgentReport, Quarantine


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


def lasting(outside: Sequence[Quarantine], now_unix_s: float) -> list[Quarantine]:
    """Those that are not over yet."""
    return [one for one in outside if now_unix_s < one.until_unix_s]


def let_in(outside: Iterable[Quarantine], node: str) -> list[Quarantine]:
    """Without those of this node."""
    return [one for one in outside if one.node != node]


def add(outside: Iterable[Quarantine], new: Quarantine) -> list[Quarantine]:
    """With one more; an earlier one of the same part is replaced."""
    return [*(one for one in outside if one.part != new.part), new]


def bearable(
    outside: Sequence[Quarantine], waiting: Sequence[AgentReport], least: int
) -> list[Quarantine]:
    """As many of these as leave the minimum of nodes among those that wait; the oldest is lifted
    first, for it has had most time to be looked at. Where lifting is no help, all stay."""
    kept = list(outside)
    if len(waiting) < least:
        return kept
    liftable = [one for one in outside if not one.is_drained]
    for one in sorted(liftable, key=lambda one: one.since_unix_s):
        if sum(not is_kept_out(agent, kept) for agent in waiting) >= least:
            break
        if any(is_kept_out(agent, [one]) for agent in waiting):
            kept.remove(one)
    return kept
