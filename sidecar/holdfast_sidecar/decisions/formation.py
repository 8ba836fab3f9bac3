"""Who is in the next attempt, under which ranks: survivors keep theirs, a spare fills gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.formatting import natural_order
from holdfast_sidecar.records.plan import Member
from holdfast_sidecar.records.reports import AgentReport


@dataclass(frozen=True)
class Waiting:
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
) -> Formation | Waiting | Mismatch:
    """Form an attempt out of the nodes that wait.

    joining: living agents that want in. previous: members of the last attempt (empty at first).
    waited_s: how long enough nodes have been here (last call, first attempt only).
    """
    if not joining:
        return Waiting("no node has joined yet")
    survivors = [agent for agent in joining if _holds_a_place(agent, previous)]
    joining = alike(of_one_launch(joining, survivors), survivors)
    wanted = joining[0]
    if (mismatch := find_mismatch(joining)) is not None:
        return mismatch
    if len(joining) < wanted.min_nodes:
        return Waiting(f"{len(joining)} of {wanted.min_nodes} nodes are here")
    if not previous and len(joining) < wanted.max_nodes and waited_s < wanted.last_call_s:
        return Waiting(f"last call: {len(joining)} of at most {wanted.max_nodes} nodes are here")
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
