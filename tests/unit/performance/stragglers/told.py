"""Lines as ranks would tell them."""

from __future__ import annotations

from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.steps import StepLine

PLAIN = StepLine(*[0] * len(StepLine._fields))


def line(rank: int, step: int, stride: int = 1, **more: int) -> StepLine:
    """A rank that works 800 ms of a step of a second; what `more` says is different."""
    told = {
        "steps": stride,
        "total": 1_000_000,
        "data": 20_000,
        "forward": 280_000,
        "backward": 500_000,
        "communicating": 200_000,
        "waits_seen": 1,
        **more,
    }
    return PLAIN._replace(rank=rank, step=step, stride=stride, **told)


def places(*roles: str) -> dict[int, RankPlace]:
    """One rank per role that is named."""
    return {rank: RankPlace(rank, f"node{rank}", role) for rank, role in enumerate(roles)}
