"""Ranks in a layout, and one frame of theirs."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace


def laid_out(dp: int = 1, tp: int = 1, pp: int = 1) -> dict[int, RankPlace]:
    """Rank = (pp * dp_size + dp) * tp_size + tp, two ranks to a node."""
    shape = {"pp": pp, "dp": dp, "tp": tp}
    places = {}
    for rank in range(dp * tp * pp):
        at = {"pp": rank // (dp * tp), "dp": rank // tp % dp, "tp": rank % tp}
        places[rank] = RankPlace(rank, f"n{rank // 2}", f"pp={at['pp']}", at, shape)
    return places


def frame(own_ms: Mapping[int, float], step: int = 10, total_ms: float = 120.0) -> StepFrame:
    """One step in which each rank works so long, all of it in forward."""
    lines = {
        rank: line(
            rank,
            step,
            total=round(1000 * total_ms),
            data=0,
            forward=round(1000 * own),
            backward=0,
            communicating=round(1000 * (total_ms - own)),
        )
        for rank, own in own_ms.items()
    }
    return StepFrame(step - 1, step, lines)


def excess(rank: int, own_ms: float, peers_ms: float, by_work: float = 0.0) -> Excess:
    """Of a rank that works so long."""
    return Excess(
        rank=rank,
        role="",
        slowdown=own_ms / peers_ms - 1,
        confidence=0.99,
        since_step=1,
        steps=10,
        own_us=1000 * own_ms,
        peers_us=1000 * peers_ms,
        parts_us={"forward": 1000 * (own_ms - peers_ms)},
        by_work=by_work,
    )
