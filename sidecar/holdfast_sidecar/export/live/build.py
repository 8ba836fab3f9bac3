"""Ranks as a live view shows them: by their nodes' reports, this node's own by its newest look."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.contract.page import Phase
from holdfast_sidecar.components.gpu.readings import Gpu, Signal, leave_out_garbage
from holdfast_sidecar.export.live import context, panels
from holdfast_sidecar.export.live.context import (
    LOST,
    PATIENCE_S,
    LiveContext,
    Reachability,
    Silence,
    silences,
)
from holdfast_sidecar.export.live.heatmap import HeatMemory, RankNow
from holdfast_sidecar.export.live.panels import (
    account_of,
    checkpoint_of,
    findings_of,
    incidents_of,
    nodes_of,
    slow_of,
)
from holdfast_sidecar.export.live.view import GpuView, Heat, LiveView, RankView
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.performance.stragglers.groups import find_places, read_roles
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.ranks.observation import RankHistory, own_s, step_s
from holdfast_sidecar.ranks.probe import STEPS_OF_PACE
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import Efficiency, Slowness, SlownessReport
from holdfast_sidecar.store.protocol import View


def ranks_of(scene: LiveContext) -> list[RankView]:
    """All ranks of the attempt under way that anybody tells of, by number."""
    plan = scene.plan
    members = [] if plan is None else [member.node for member in plan.members]
    reports = [scene.cluster.nodes[name] for name in members if name in scene.cluster.nodes]
    told = {
        rank.rank: rank
        for report in reports
        if plan is not None and report.attempt == plan.attempt
        for rank in _rank_reported(report, scene)
    }
    told |= {rank.rank: rank for rank in scene.own_ranks}
    slow = _slow_ranks(scene.standing)
    return [_with_slowness(told[rank], slow.get(rank)) for rank in sorted(told)]


def own_ranks(picture: TickState) -> list[RankView]:
    """Those of this node, as its newest look has them, unless a later attempt has followed."""
    plan, ranks = picture.orders.plan, picture.ranks
    if plan is not None and plan.attempt > ranks.attempt:
        return []
    gpus = _gpus(picture)
    return [
        _rank_seen(history, picture.moment, gpus.get(rank)) for rank, history in ranks.local.items()
    ]


def _rank_reported(report: NodeReport, scene: LiveContext) -> Iterator[RankView]:
    heard_unix_s = scene.heartbeats.get(report.node, scene.now_unix_s)
    silence = scene.silences.get(report.node)
    for rank in report.ranks:
        view = RankView(
            rank=rank.rank,
            node=report.node,
            step=rank.step,
            phase=rank.phase,
            busy=rank.busy,
            phase_since_unix_s=heard_unix_s - rank.phase_age_s,
            alive=rank.alive or rank.has_finished,
            gpu=_told_gpu(rank),
        )
        if silence is not None and not rank.has_finished:
            yield _unheard(view, silence)
        else:
            yield _with_pace(view, rank.step_s, rank.own_s)


def _unheard(view: RankView, silence: Silence) -> RankView:
    """As it was heard last; how fast it is and what its GPU does nobody knows now."""
    return replace(
        view,
        alive=view.alive and silence.kind != LOST,
        gpu=None,
        silence=silence.kind,
        heard_unix_s=silence.since_unix_s,
    )


def _rank_seen(history: RankHistory, moment: Moment, gpu: GpuView | None) -> RankView:
    look = history.look
    view = RankView(
        rank=look.rank,
        node=moment.node,
        step=look.step,
        phase=look.phase.name.lower(),
        busy=look.busy,
        phase_since_unix_s=moment.unix_s(look.moved_s),
        alive=not look.has_died or look.has_finished,
        gpu=gpu,
    )
    steps = history.whole_steps
    return _with_pace(view, step_s(steps, STEPS_OF_PACE), own_s(steps, STEPS_OF_PACE))


def _with_pace(view: RankView, whole_s: float, own: float) -> RankView:
    """What a step takes; the rest of it is waiting, where its parts are known."""
    wait_s = max(0.0, whole_s - own) if whole_s and own else None
    return replace(view, step_s=whole_s or None, own_s=own or None, wait_s=wait_s)


def _told_gpu(rank: RankReport) -> GpuView | None:
    """What a rank of another node says of its device; the driver is asked on its own node alone."""
    if rank.power_w is None and not rank.memory_total:
        return None
    size = float(rank.memory_total) or None
    used = float(rank.memory_reserved) if size else None
    return GpuView(memory_used_bytes=used, memory_size_bytes=size, power_w=rank.power_w)


def _gpus(picture: TickState) -> dict[int, GpuView]:
    """rank -> its first GPU; none where the driver has stopped answering."""
    reading = picture.machine.gpu
    if reading is None or not reading.is_present or reading.stale_since_s is not None:
        return {}
    by_uuid = {gpu.uuid: gpu for gpu in leave_out_garbage(reading).gpus if not gpu.lost}
    ties = picture.gpus.ownership.ties
    return {
        rank: _gpu(by_uuid[tie.gpus[0]])
        for rank, tie in ties.items()
        if tie.gpus and tie.gpus[0] in by_uuid
    }


def _gpu(gpu: Gpu) -> GpuView:
    return GpuView(
        busy=gpu.value(Signal.BUSY),
        temperature_c=gpu.value(Signal.TEMPERATURE),
        clock_hz=gpu.value(Signal.SM_CLOCK),
        memory_used_bytes=gpu.value(Signal.MEMORY_USED),
        memory_size_bytes=gpu.value(Signal.MEMORY_SIZE),
        power_w=gpu.value(Signal.POWER),
    )


def _slow_ranks(standing: SlownessReport | None) -> dict[int, Slowness]:
    slow = [] if standing is None else standing.slow
    return {rank: one for one in slow for rank in one.ranks}


def _with_slowness(rank: RankView, slow: Slowness | None) -> RankView:
    if slow is None or rank.silence:
        return rank
    return replace(rank, slowdown=slow.slowdown, cause=slow.cause.value)


# Puts a live view together: from a sidecar's picture, or from what the store holds alone.

# What the heat map's memory is fed with: who leads hears all ranks, others see their own.

PHASES = {phase.name.lower(): int(phase) for phase in Phase}
"""As reports call them."""

GONE, LOST_PHASE = len(Phase), len(Phase) + 1
"""What stands in a phase's place of a rank that is dead, or lost with its node."""

PHASE_NAMES = [*(phase.name.lower() for phase in sorted(Phase)), "gone", "lost"]
"""By their numbers."""


@dataclass(frozen=True)
class LiveInput:
    """What there is to feed at this moment."""

    ranks: list[RankNow]
    world_size: int
    step: int | None


def told_now(picture: TickState, patience_s: float = PATIENCE_S) -> LiveInput:
    """Of the attempt under way; nothing once the job is over, nor by who is not heard any more."""
    plan, ranks = picture.orders.plan, picture.ranks
    attempt = ranks.attempt if plan is None else max(plan.attempt, ranks.attempt)
    is_over = plan is not None and plan.state in TERMINAL
    everybody = [] if is_over else [one for one in _heard(picture) if one.attempt == attempt]
    unheard = silences([one.node for one in everybody], _hearing(picture, patience_s))
    reports = [one for one in everybody if one.node not in unheard]
    places = find_places({one.node: one.ranks for one in reports}, read_roles(plan, attempt))
    told = {rank.rank: _reported(rank, places) for one in reports for rank in one.ranks}
    for one in everybody:
        if one.node in unheard and unheard[one.node].kind == context.LOST:
            told |= {rank.rank: RankNow(rank.rank, 0.0, LOST_PHASE) for rank in _unfinished(one)}
    steps = {rank.rank: rank.step for one in reports for rank in one.ranks}
    if ranks.attempt == attempt and not is_over:
        told |= {rank: _seen(history, places) for rank, history in ranks.local.items()}
        # In place of what its report says, which is as old as the store's absence.
        steps |= {rank: history.look.step for rank, history in ranks.local.items()}
    size = plan.world_size if plan is not None and plan.world_size else ranks.world_size
    return LiveInput(list(told.values()), max(size, len(told)), min(steps.values(), default=None))


def _heard(picture: TickState) -> Iterable[NodeReport]:
    """While the store is away, and by those who don't lead, only this node's own: in its last
    report stands what role its ranks have."""
    nodes: Mapping[str, NodeReport] = picture.orders.nodes or {}
    if picture.orders.is_leader and picture.orders.store_up:
        return nodes.values()
    own = nodes.get(picture.moment.node)
    return [] if own is None else [own]


def _hearing(picture: TickState, patience_s: float) -> Reachability:
    moment, store_up = picture.moment, picture.orders.store_up
    found = picture.findings
    return Reachability(
        moment.now_unix_s, moment.node, picture.heartbeats, found, store_up, patience_s=patience_s
    )


def _unfinished(report: NodeReport) -> Iterable[RankReport]:
    return [rank for rank in report.ranks if not rank.has_finished]


def _reported(rank: RankReport, places: Mapping[int, RankPlace]) -> RankNow:
    is_there = rank.alive and not rank.has_finished
    phase = PHASES.get(rank.phase, -1) if rank.alive or rank.has_finished else GONE
    return RankNow(rank.rank, rank.own_s if is_there else 0.0, phase, _role(rank.rank, places))


def _seen(history: RankHistory, places: Mapping[int, RankPlace]) -> RankNow:
    look = history.look
    own = 0.0 if look.has_died else own_s(history.whole_steps, STEPS_OF_PACE)
    phase = GONE if look.has_died and not look.has_finished else int(look.phase)
    return RankNow(look.rank, own, phase, _role(look.rank, places))


def _role(rank: int, places: Mapping[int, RankPlace]) -> str:
    place = places.get(rank)
    return "" if place is None else place.role


WARNINGS = 12
"""More than this nobody reads; the table of what was found has the rest."""


def context_of(
    picture: TickState, run: str, away_since_unix_s: float | None, patience_s: float = PATIENCE_S
) -> LiveContext:
    """What a sidecar knows at this tick."""
    orders, moment = picture.orders, picture.moment
    return LiveContext(
        run=run,
        now_unix_s=moment.now_unix_s,
        view=orders.view,
        node=moment.node,
        is_leader=orders.is_leader,
        store_up=orders.store_up,
        store_away_since_unix_s=away_since_unix_s,
        heartbeats=picture.heartbeats,
        own_ranks=own_ranks(picture),
        own_findings=picture.findings,
        reports=orders.nodes,
        picture=picture,
        patience_s=patience_s,
    )


def of_store(
    run: str, view: View, now_unix_s: float, heartbeats: Mapping[str, float] | None = None
) -> LiveView:
    """What the store alone tells of a job; of nodes that nobody watched long enough nobody knows
    whether their heartbeats move."""
    return gather(LiveContext(run, now_unix_s, view, heartbeats=heartbeats or {}))


def gather(scene: LiveContext, memory: HeatMemory | None = None) -> LiveView:
    """The view of this scene."""
    plan, ranks = scene.plan, ranks_of(scene)
    incidents = incidents_of(scene.cluster.incidents.values())
    (light, told), *more = panels.judge(scene, incidents)
    efficiency = _efficiency(scene)
    account = account_of(scene.cluster.account)
    return LiveView(
        run=scene.run,
        now_unix_s=scene.now_unix_s,
        node=scene.node,
        is_leader=scene.is_leader,
        leader_node=scene.leader_node,
        leader_address="" if scene.leader is None else scene.leader.metrics_address,
        store_up=scene.store_up,
        store_away_since_unix_s=scene.store_away_since_unix_s,
        state=_state(scene),
        light=light,
        headline=told,
        warnings=_in_brief([words for _, words in more]),
        waits=scene.waiting,
        attempt=None if plan is None else plan.attempt,
        world_size=0 if plan is None else plan.world_size,
        step=_step(ranks),
        step_s=_middle([rank.step_s for rank in ranks if rank.alive and not rank.silence]),
        tokens_per_s=_tokens_per_s(scene) or efficiency.tokens_per_s,
        mfu=efficiency.mfu,
        restarts=0 if plan is None else plan.restarts,
        paused_by="" if plan is None or plan.pause is None else plan.pause.by,
        message="" if plan is None else plan.message,
        account=dict(account.seconds),
        lost_s=account.lost_s,
        goodput=account.goodput,
        ettr=account.ettr,
        ranks=ranks,
        nodes=nodes_of(scene),
        heat=Heat() if memory is None else memory.heat(PHASE_NAMES),
        incidents=incidents,
        findings=findings_of(scene.findings),
        slow=slow_of(scene.standing),
        checkpoint=checkpoint_of(scene),
    )


def _in_brief(warnings: list[str]) -> list[str]:
    """A switch that fails is found on every node behind it."""
    left_out = len(warnings) - WARNINGS
    told = warnings[:WARNINGS]
    return [*told, f"and {left_out} more of the kind"] if left_out > 0 else told


def _state(scene: LiveContext) -> str:
    """As `holdfast status` says it."""
    if scene.plan is None:
        return "" if scene.view is None else "waiting"
    return "waiting" if scene.plan.state == "ended" and scene.waiting else scene.plan.state


def _step(ranks: list[RankView]) -> int | None:
    """How far the job has come: as far as the last of its ranks that are heard."""
    heard = [rank for rank in ranks if not rank.silence] or ranks
    return min((rank.step for rank in heard), default=None)


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _tokens_per_s(scene: LiveContext) -> float | None:
    """What all ranks tell together."""
    told = [
        rank.tokens_per_s
        for node in scene.cluster.nodes.values()
        if scene.plan is not None and node.attempt == scene.plan.attempt
        if node.node not in scene.silences
        for rank in node.ranks
        if rank.alive and rank.tokens_per_s is not None
    ]
    return sum(told) if told and not scene.is_over else None


def _efficiency(scene: LiveContext) -> Efficiency:
    standing = scene.standing
    known = None if standing is None else standing.efficiency
    return Efficiency() if known is None else known
