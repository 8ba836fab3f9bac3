"""Ranks on several nodes that exchange in groups, step after step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.exchanges import Exchanges, SlowExchange
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.steps import ProcessGroup

USUAL_US = 20_000


def grouped(nodes: Sequence[str], *groups: Sequence[int]) -> dict[int, RankPlace]:
    """One rank per node that is named, in those of the groups that name it, in that order."""
    places = {}
    for rank, node in enumerate(nodes):
        own = [
            ProcessGroup(f"group_{number}", f"digest-{number}", len(members))
            for number, members in enumerate(groups)
            if rank in members
        ]
        slots = (*own, None, None, None, None)[:4]
        places[rank] = RankPlace(rank, node, groups=slots)
    return places


Slower = Callable[[int, str], int]
"""Step and digest of a group -> what its exchange takes longer."""


def exchange(
    places: Mapping[int, RankPlace],
    steps: int,
    slower: Slower = lambda step, digest: 0,
    late: Mapping[int, int] | None = None,
    without: Callable[[int], set[int]] = lambda step: set(),
) -> dict[int, tuple[SlowExchange, ...]]:
    """Step -> what is slow at it. `late`: rank -> what it works longer, for which others wait."""
    exchanges, told = Exchanges(), {}
    for step in range(1, steps + 1):
        told[step] = exchanges.follow(_frame(places, step, slower, late or {}, without), places)
    return told


def _frame(
    places: Mapping[int, RankPlace],
    step: int,
    slower: Slower,
    late: Mapping[int, int],
    without: Callable[[int], set[int]],
) -> StepFrame:
    last: dict[str, int] = {}
    for rank, place in places.items():
        for group in filter(None, place.groups):
            last[group.digest] = max(last.get(group.digest, 0), late.get(rank, 0))
    lines = {}
    for rank, place in places.items():
        if rank in without(step):
            continue
        jitter = 100 * ((7 * rank + 13 * step) % 11)
        waits = {
            f"wait_{slot}": USUAL_US
            + jitter
            + slower(step, group.digest)
            + last[group.digest]
            - late.get(rank, 0)
            for slot, group in enumerate(place.groups, start=1)
            if group is not None
        }
        forward = 280_000 + late.get(rank, 0)
        lines[rank] = line(rank, step, forward=forward, communicating=sum(waits.values()), **waits)
    return StepFrame(step - 1, step, lines)
