"""What the heat map's memory is fed with: who leads hears all ranks, others see their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.page import Phase
from holdfast_sidecar.live import silence
from holdfast_sidecar.live.heat import RankNow
from holdfast_sidecar.live.silence import PATIENCE_S, Hearing, silences
from holdfast_sidecar.performance.stragglers.placement import Place
from holdfast_sidecar.performance.stragglers.places import find_places, read_roles
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.ranks.observation import RankHistory, own_s
from holdfast_sidecar.ranks.probe import STEPS_OF_PACE
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.records.reports import NodeReport, RankReport

PHASES = {phase.name.lower(): int(phase) for phase in Phase}
"""As reports call them."""

GONE, LOST = len(Phase), len(Phase) + 1
"""What stands in a phase's place of a rank that is dead, or lost with its node."""

PHASE_NAMES = [*(phase.name.lower() for phase in sorted(Phase)), "gone", "lost"]
"""By their numbers."""


@dataclass(frozen=True)
class Told:
    """What there is to feed at this moment."""

    ranks: list[RankNow]
    world_size: int
    step: int | None


def told_now(picture: Picture, patience_s: float = PATIENCE_S) -> Told:
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
        if one.node in unheard and unheard[one.node].kind == silence.LOST:
            told |= {rank.rank: RankNow(rank.rank, 0.0, LOST) for rank in _unfinished(one)}
    steps = {rank.rank: rank.step for one in reports for rank in one.ranks}
    if ranks.attempt == attempt and not is_over:
        told |= {rank: _seen(history, places) for rank, history in ranks.local.items()}
        # In place of what its report says, which is as old as the store's absence.
        steps |= {rank: history.look.step for rank, history in ranks.local.items()}
    size = plan.world_size if plan is not None and plan.world_size else ranks.world_size
    return Told(list(told.values()), max(size, len(told)), min(steps.values(), default=None))


def _heard(picture: Picture) -> Iterable[NodeReport]:
    """While the store is away, and by those who don't lead, only this node's own: in its last
    report stands what role its ranks have."""
    nodes: Mapping[str, NodeReport] = picture.orders.nodes or {}
    if picture.orders.is_leader and picture.orders.store_up:
        return nodes.values()
    own = nodes.get(picture.moment.node)
    return [] if own is None else [own]


def _hearing(picture: Picture, patience_s: float) -> Hearing:
    moment, store_up = picture.moment, picture.orders.store_up
    found = picture.findings
    return Hearing(
        moment.now_unix_s, moment.node, picture.heartbeats, found, store_up, patience_s=patience_s
    )


def _unfinished(report: NodeReport) -> Iterable[RankReport]:
    return [rank for rank in report.ranks if not rank.has_finished]


def _reported(rank: RankReport, places: Mapping[int, Place]) -> RankNow:
    is_there = rank.alive and not rank.has_finished
    phase = PHASES.get(rank.phase, -1) if rank.alive or rank.has_finished else GONE
    return RankNow(rank.rank, rank.own_s if is_there else 0.0, phase, _role(rank.rank, places))


def _seen(history: RankHistory, places: Mapping[int, Place]) -> RankNow:
    look = history.look
    own = 0.0 if look.has_died else own_s(history.whole_steps, STEPS_OF_PACE)
    phase = GONE if look.has_died and not look.has_finished else int(look.phase)
    return RankNow(look.rank, own, phase, _role(look.rank, places))


def _role(rank: int, places: Mapping[int, Place]) -> str:
    place = places.get(rank)
    return "" if place is None else place.role
