"""Ranks as a live view shows them: by their nodes' reports, this node's own by its newest look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast_sidecar.components.gpu.readings import Gpu, Signal, leave_out_garbage
from holdfast_sidecar.export.live.scene import LOST, Scene, Silence
from holdfast_sidecar.export.live.view import GpuView, RankView
from holdfast_sidecar.export.state import Picture
from holdfast_sidecar.ranks.observation import RankHistory, own_s, step_s
from holdfast_sidecar.ranks.probe import STEPS_OF_PACE
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import Slowness, SlowStanding


def ranks_of(scene: Scene) -> list[RankView]:
    """All ranks of the attempt under way that anybody tells of, by number."""
    plan = scene.plan
    members = [] if plan is None else [member.node for member in plan.members]
    reports = [scene.cluster.nodes[name] for name in members if name in scene.cluster.nodes]
    told = {
        rank.rank: rank
        for report in reports
        if plan is not None and report.attempt == plan.attempt
        for rank in _reported(report, scene)
    }
    told |= {rank.rank: rank for rank in scene.own_ranks}
    slow = _slow_ranks(scene.standing)
    return [_with_slowness(told[rank], slow.get(rank)) for rank in sorted(told)]


def own_ranks(picture: Picture) -> list[RankView]:
    """Those of this node, as its newest look has them, unless a later attempt has followed."""
    plan, ranks = picture.orders.plan, picture.ranks
    if plan is not None and plan.attempt > ranks.attempt:
        return []
    gpus = _gpus(picture)
    return [_seen(history, picture.moment, gpus.get(rank)) for rank, history in ranks.local.items()]


def _reported(report: NodeReport, scene: Scene) -> Iterator[RankView]:
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


def _seen(history: RankHistory, moment: Moment, gpu: GpuView | None) -> RankView:
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


def _gpus(picture: Picture) -> dict[int, GpuView]:
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


def _slow_ranks(standing: SlowStanding | None) -> dict[int, Slowness]:
    slow = [] if standing is None else standing.slow
    return {rank: one for one in slow for rank in one.ranks}


def _with_slowness(rank: RankView, slow: Slowness | None) -> RankView:
    if slow is None or rank.silence:
        return rank
    return replace(rank, slowdown=slow.slowdown, cause=slow.cause.value)
