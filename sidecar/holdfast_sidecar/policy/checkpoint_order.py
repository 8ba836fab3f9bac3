"""When to arm a coordinated checkpoint, at which future step, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings, SidecarSettings
from holdfast_sidecar.policy.budget import HANGS
from holdfast_sidecar.policy.checkpoint_choice import ABOUT_NUMBERS
from holdfast_sidecar.policy.checkpoint_schedule import fewest_slots
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import (
    LOOP_ENDED,
    CheckpointOrder,
    LedgerEntry,
    SavedPart,
)
from holdfast_sidecar.records.findings import Kind, Remedy
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

BUSY_ENDINGS = frozenset({"missed", "left", "void", "failed"})

WRITING = frozenset({"saving", "saved"})
"""One rank in these says that all of them arrived: they began together."""

LARGEST_MARGIN_DOUBLINGS = 4

STEPS_AHEAD = 2
"""Of long steps: ranks may be about to end the one that they are in, so the order is for the end of
the one after it."""


@dataclass(frozen=True)
class Complete:
    """Every rank saved and every node hashed its part."""

    parts: tuple[SavedPart, ...]


@dataclass(frozen=True)
class SaveVoid:
    """The order came to nothing, and why."""

    reason: str


@dataclass(frozen=True)
class Copied:
    """Every rank holds its part in memory; now it is only written."""


@dataclass(frozen=True)
class SavePending:
    """Still under way."""


def obstacle(plan: Plan, ranks: Mapping[int, RankReport]) -> str:
    """Why no checkpoint can be armed now; empty when one can."""
    if len(ranks) < plan.world_size:
        return f"{len(ranks)} of {plan.world_size} ranks are up"
    # Before the question what to save: a script says it only once it has built its model.
    if any(r.phase in ("starting", "restoring") for r in ranks.values()):
        return "the ranks are still starting"
    if unregistered := [r.rank for r in ranks.values() if not r.state_registered]:
        return (
            f"rank {min(unregistered)} has not said what to save"
            " (a coordinated checkpoint needs the three lines)"
        )
    if not all(r.alive and r.ending == 0 for r in ranks.values()):
        return "a rank has ended"
    return ""


def margin_s(settings: SidecarSettings, doublings: int) -> float:
    """How far ahead a step must lie so that every rank hears of it in time.

    A rank's step may be a tick and a heartbeat old when the leader reads it, and the order takes
    as long on its way back if the wake-up is lost. Doubled after each order that came too late.
    """
    once: float = 2 * (settings.tick_s + settings.heartbeat_s)
    return once * 2.0 ** min(doublings, LARGEST_MARGIN_DOUBLINGS)


def step_to_arm(ranks: Mapping[int, RankReport], margin: float, every_steps: int) -> int:
    """The future step to save at: beyond the margin, on the grid when there is one."""
    furthest = max(r.step for r in ranks.values())
    pace = [r.step_s for r in ranks.values() if r.step_s > 0]
    ahead = math.ceil(margin / min(pace)) if pace else 1
    earliest = furthest + max(ahead + 1, STEPS_AHEAD)
    return math.ceil(earliest / every_steps) * every_steps if every_steps > 0 else earliest


def last_step(ledger: Iterable[LedgerEntry], plan: Plan, ranks: Mapping[int, RankReport]) -> int:
    """The newest step this attempt has on storage: saved by it, or before what it resumed from.

    What earlier attempts saved further on lies on a branch that was abandoned; and what was resumed
    from may have been a snapshot, which is on no storage.
    """
    resumed = max((rank.resumed_step for rank in ranks.values()), default=0)
    if not resumed:  # not yet: they will, and from nothing older than this
        resumed = max((c.step for c in plan.resume if c.tier == "durable"), default=0)
    usable = (entry for entry in ledger if entry.verdict != "poisoned")
    saved = (e.step for e in usable if e.attempt == plan.attempt or e.step <= resumed)
    return max(saved, default=0)


def seconds_of_work(since_step: int, ranks: Mapping[int, RankReport]) -> float:
    """How long the steps since this one took; 0 while nobody's pace is known."""
    return max(((r.step - since_step) * r.step_s for r in ranks.values()), default=0.0)


def is_pace_known(ranks: Mapping[int, RankReport]) -> bool:
    """Whether any rank says how long its steps take: they do after the first ones."""
    return any(rank.step_s > 0 for rank in ranks.values())


def seconds_until(step: int, ranks: Mapping[int, RankReport]) -> float:
    """How long the slowest rank takes to reach this step; 0 while nobody's pace is known."""
    return max(((step - r.step) * r.step_s for r in ranks.values()), default=0.0)


def seconds_to_save(step: int, ranks: Mapping[int, RankReport]) -> float:
    """How long the slowest rank may take until it can be saved, once it has reached this step.

    Where it gathers gradients there, it goes on to the end of the window: for as long as one of its
    latest took at most.
    """
    waits_s = max((max(0.0, r.window_s - r.step_s) for r in ranks.values()), default=0.0)
    return seconds_until(step, ranks) + waits_s


def soonest_s(ranks: Mapping[int, RankReport]) -> float:
    """How long the slowest rank may take to the first moment at which it can be saved when it is
    asked to now; 0 while nobody's pace is known. Of short steps see `margin_s` besides."""
    furthest = max((rank.step for rank in ranks.values()), default=0)
    return seconds_to_save(furthest + STEPS_AHEAD, ranks)


def is_within_reach(step: int, ranks: Mapping[int, RankReport], margin: float) -> bool:
    """Whether an order for this step holds up no other one for long: it is reached within two
    margins or, where steps are long, none that can be armed comes sooner."""
    is_soon = seconds_until(step, ranks) <= 2 * margin or step == step_to_arm(ranks, margin, 0)
    return is_pace_known(ranks) and is_soon


def is_due(
    settings: CheckpointSettings,
    ranks: Mapping[int, RankReport],
    last_step: int,
    since_last_s: float,
    every_s: float,
) -> bool:
    """Whether the schedule asks for one (by steps: always, and the next one on the grid).

    every_s: what `policy.checkpoint_schedule` aims at.
    """
    furthest = max((r.step for r in ranks.values()), default=0)
    if furthest <= last_step and last_step > 0:
        return False
    if settings.every_steps > 0:
        return True
    return bool(settings.dir) and since_last_s >= every_s


def trigger_of(asked_by: str) -> str:
    """Why an order is given, as CheckpointOrder has it."""
    if ":" in asked_by:
        return "finding"
    return {"": "periodic", "grow": "grow", "preempt": "preempt"}.get(asked_by, "manual")


def judge(
    order: CheckpointOrder,
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    ranks: Mapping[int, RankReport],
    still_for_s: float,
) -> Complete | Copied | SaveVoid | SavePending:
    """What became of an armed order. `still_for_s`: since it was armed, or since `how_far` it is
    last changed."""
    if plan.attempt != order.attempt or plan.state != "running":
        return SaveVoid("the attempt ended")
    parts = parts_of(order, plan, nodes)
    states = states_of(parts)
    if trouble := _trouble(parts, states, ranks):
        return SaveVoid(trouble)
    saved = sum(state == "saved" for state in states.values())
    hashed = len(parts) == len(plan.members) and all(part.files for part in parts)
    if saved == plan.world_size and hashed:
        return Complete(tuple(parts))
    if is_copied(order, plan, nodes):
        return Copied()
    if early := [r for r in ranks.values() if r.ending and r.step < order.step]:
        if all(rank.has_finished for rank in early):
            return SaveVoid(LOOP_ENDED)
        return SaveVoid(f"rank {min(rank.rank for rank in early)} ended before step {order.step}")
    limit_s = order.deadline_s
    if any(state in WRITING for state in states.values()):
        limit_s += order.write_timeout_s
    if still_for_s > limit_s:
        return SaveVoid(f"{saved} of {plan.world_size} ranks saved within {limit_s:g} s")
    return SavePending()


def _trouble(
    parts: Sequence[SavedPart], states: Mapping[str, str], ranks: Mapping[int, RankReport]
) -> str:
    for rank, state in sorted(states.items()):
        if state in BUSY_ENDINGS:
            return LOOP_ENDED if state == "left" else f"rank {rank}: {state}"
    if errors := [part.error for part in parts if part.error]:
        return errors[0]
    if len(steps := boundaries(parts)) > 1:
        return f"ranks came to different boundaries: {', '.join(map(str, sorted(steps)))}"
    if sick := [r.rank for r in ranks.values() if not r.is_loss_finite]:
        return f"rank {min(sick)} has a loss that is not finite"
    return ""


def is_copied(order: CheckpointOrder, plan: Plan, nodes: Mapping[str, NodeReport]) -> bool:
    """Whether every rank of the order's attempt holds its part in memory."""
    states = states_of(parts_of(order, plan, nodes))
    copied = sum(state == "copied" for state in states.values())
    is_whole = plan.attempt == order.attempt and 0 < plan.world_size == copied
    return is_whole and len(boundaries(parts_of(order, plan, nodes))) <= 1


def as_saved(
    order: CheckpointOrder, plan: Plan, nodes: Mapping[str, NodeReport]
) -> CheckpointOrder:
    """The order, of the boundary at which its ranks saved: where gradients waited at the armed step
    it was the next one."""
    steps = boundaries(parts_of(order, plan, nodes))
    return order.at(min(steps)) if len(steps) == 1 and steps != {order.step} else order


def boundaries(parts: Iterable[SavedPart]) -> set[int]:
    """Where ranks saved, as far as they say; one, unless they are out of step."""
    return {part.step for part in parts if part.step >= 0}


def parts_of(
    order: CheckpointOrder, plan: Plan, nodes: Mapping[str, NodeReport]
) -> list[SavedPart]:
    """What the members' sidecars say of this order."""
    return [
        node.saved
        for member in plan.members
        if (node := nodes.get(member.node)) is not None
        and node.saved is not None
        and node.saved.identifier == order.identifier
    ]


def how_far(order: CheckpointOrder, nodes: Mapping[str, NodeReport]) -> tuple[int, int]:
    """Nodes that are through with this order, and bytes that all have written and hashed for it."""
    said = (node.saved for node in nodes.values() if node.saved is not None)
    parts = [part for part in said if part.identifier == order.identifier]
    return sum(bool(part.files) for part in parts), sum(part.done_bytes for part in parts)


def states_of(parts: Iterable[SavedPart]) -> dict[str, str]:
    """rank -> how far it is."""
    return {rank: state for part in parts for rank, state in part.states.items()}


# Writing down a snapshot that every rank has: who writes what, and what came of it.
#
# It needs no rank any more, so it outlives its attempt; only numbers gone wrong take it back.


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
) -> Complete | SaveVoid | SavePending:
    """What became of an order in `writing`. `unattended`: nodes whose sidecar is gone.

    `still_for_s`: how long no node has made progress. One that hangs alone is given up by its own
    desk, so this ends what nobody would ever hear of again.
    """
    if sick := [r for r in ranks.values() if 0 <= r.onset_step <= order.step]:
        return SaveVoid(f"rank {min(r.rank for r in sick)} had a loss that is not finite by then")
    writers = set(order.writers.values())
    parts = [part for node in sorted(writers) if (part := _part(nodes.get(node), order))]
    if errors := [part.error for part in parts if part.error]:
        return SaveVoid(errors[0])
    if len(parts) == len(writers) and all(part.files for part in parts):
        return Complete(tuple(parts))
    silent = writers & set(unattended) - {n for n in writers if _is_through(nodes.get(n), order)}
    if silent:
        return SaveVoid(f"node {min(silent)} was lost while it wrote")
    if still_for_s > order.write_timeout_s:
        done = sum(bool(part.files) for part in parts)
        moved = f"and no other made progress for {order.write_timeout_s:g} s"
        return SaveVoid(f"{done} of {len(writers)} nodes wrote, {moved}")
    return SavePending()


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


# Whether a job that is to be restarted for a fault can be saved before. Pure.


def can_be_saved(incident: Incident, cluster: Cluster, plan: Plan) -> bool:
    """Whether all ranks will come to the step at which they save, with something worth it:
    who hangs does not, whose GPU is gone can't read its state, and nobody wants wrong numbers."""
    leaders = (node.checkpoint for node in cluster.nodes.values() if node.checkpoint is not None)
    if not any(settings.dir for settings in leaders):
        return False
    if incident.cause in HANGS | ABOUT_NUMBERS or _is_gone(incident, cluster):
        return False
    return not obstacle(plan, cluster.ranks(plan))


def _is_gone(incident: Incident, cluster: Cluster) -> bool:
    """What needs a reboot mostly fell off the bus."""
    node = cluster.nodes.get(incident.culprit_node)
    findings = [] if node is None else node.findings
    is_lost = any(f.kind is Kind.GPU_LOST and f.gpu == incident.gpu for f in findings)
    return bool(incident.gpu) and (is_lost or incident.remedy == Remedy.REBOOT_NODE.value)
