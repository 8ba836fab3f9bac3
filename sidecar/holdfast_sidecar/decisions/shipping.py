"""Writing down a snapshot that every rank has: who writes what, and what came of it.

It needs no rank any more, so it outlives its attempt; only numbers gone wrong take it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast_sidecar.decisions.checkpointing import Complete, Pending, Void
from holdfast_sidecar.decisions.snapshotting import fewest_slots
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport


@dataclass(frozen=True)
class Shipment:
    """A snapshot to be written down: its step, and rank -> node that has that rank's part."""

    step: int
    writers: dict[str, str]


def writers_of(plan: Plan) -> dict[str, str]:
    """Rank -> node, where every node writes what its own ranks have just copied."""
    return {str(rank): member.node for member in plan.members for rank in member.ranks}


def mode_for(plan: Plan, nodes: Mapping[str, NodeReport]) -> str:
    """`snapshot` where every rank of the attempt has a slot to copy into, else `direct`."""
    return "snapshot" if fewest_slots(plan, nodes) >= 1 else "direct"


def awaited_slots(plan: Plan, nodes: Mapping[str, NodeReport]) -> str:
    """Why it is worth waiting a moment for a checkpoint that blocks nobody; empty: it is not."""
    for member in plan.members:
        report = nodes[member.node].snapshot if member.node in nodes else None
        if report is not None and report.wants and not report.slots and not report.obstacle:
            return f"the slots of node {member.node} are being made"
    return ""


def judge_writing(
    order: CheckpointOrder,
    nodes: Mapping[str, NodeReport],
    unattended: Iterable[str],
    ranks: Mapping[int, RankReport],
    still_for_s: float,
) -> Complete | Void | Pending:
    """What became of an order in `writing`. `unattended`: nodes whose sidecar is gone.

    `still_for_s`: how long no node has made progress. One that hangs alone is given up by its own
    desk, so this ends what nobody would ever hear of again.
    """
    if sick := [r for r in ranks.values() if 0 <= r.onset_step <= order.step]:
        return Void(f"rank {min(r.rank for r in sick)} had a loss that is not finite by then")
    writers = set(order.writers.values())
    parts = [part for node in sorted(writers) if (part := _part(nodes.get(node), order))]
    if errors := [part.error for part in parts if part.error]:
        return Void(errors[0])
    if len(parts) == len(writers) and all(part.files for part in parts):
        return Complete(tuple(parts))
    silent = writers & set(unattended) - {n for n in writers if _is_through(nodes.get(n), order)}
    if silent:
        return Void(f"node {min(silent)} was lost while it wrote")
    if still_for_s > order.write_timeout_s:
        done = sum(bool(part.files) for part in parts)
        moved = f"and no other made progress for {order.write_timeout_s:g} s"
        return Void(f"{done} of {len(writers)} nodes wrote, {moved}")
    return Pending()


def newest_shipment(
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    is_alive: Callable[[str], bool],
    below: float = math.inf,
) -> Shipment | None:
    """The newest step, less than `below`, of which every rank's part lies on a living node, and
    where.

    A rank's own slot is taken before another node's copy: no network brought it there.
    """
    holders = {str(rank): _holders(str(rank), nodes, is_alive) for rank in range(plan.world_size)}
    if not holders:
        return None
    steps = set.intersection(*(set(found) for found in holders.values()))
    newest = _newest(steps, below)
    if newest < 0:
        return None
    return Shipment(newest, {rank: found[newest] for rank, found in holders.items()})


def _holders(
    rank: str, nodes: Mapping[str, NodeReport], is_alive: Callable[[str], bool]
) -> dict[int, str]:
    """step -> node."""
    found: dict[int, str] = {}
    reports = sorted(
        (n.node, n.snapshot) for n in nodes.values() if n.snapshot and is_alive(n.node)
    )
    for node, report in reports:
        for step in report.copies.get(rank, []):
            found.setdefault(step, node)
    for node, report in reports:
        for step in report.held.get(rank, []):
            found[step] = node
    return found


def _part(node: NodeReport | None, order: CheckpointOrder) -> SavedPart | None:
    part = None if node is None else node.saved
    return part if part is not None and part.identifier == order.identifier else None


def _is_through(node: NodeReport | None, order: CheckpointOrder) -> bool:
    part = _part(node, order)
    return part is not None and bool(part.files)


def plan_of(order: CheckpointOrder, plan: Plan | None) -> Plan:
    """The plan under which the order was copied, as far as a manifest needs it."""
    if plan is not None and plan.attempt == order.attempt and _covers(plan, order):
        return plan
    ranks_of: dict[str, list[int]] = {}
    for rank in sorted(map(int, order.writers)):
        ranks_of.setdefault(order.writers[str(rank)], []).append(rank)
    members = [
        Member(node, "", index, ranks[0], len(ranks))
        for index, (node, ranks) in enumerate(ranks_of.items())
    ]
    return Plan(order.attempt, order.epoch, "ended", members, len(order.writers))


def _covers(plan: Plan, order: CheckpointOrder) -> bool:
    return writers_of(plan) == order.writers


def newest_held(world_size: int, held: Mapping[str, list[int]], below: float = math.inf) -> int:
    """The newest step, less than `below`, that all ranks sealed in slots of one node; -1: none."""
    steps = [set(held.get(str(rank), [])) for rank in range(world_size)]
    return _newest(set.intersection(*steps), below) if steps else -1


def _newest(steps: Iterable[int], below: float) -> int:
    return max((step for step in steps if step < below), default=-1)
