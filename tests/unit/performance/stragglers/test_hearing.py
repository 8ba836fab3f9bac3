from __future__ import annotations

from tests.unit.performance.stragglers.parallel import excess
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.causes import CauseFinder
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import SlowCause

PLACES = {rank: RankPlace(rank, f"n{rank // 4}") for rank in range(8)}
SLOW = excess(0, 1040.0, 800.0)


def frame(step: int, **signals: int) -> StepFrame:
    lines = {rank: line(rank, step) for rank in PLACES}
    lines[0] = line(0, step, forward=520_000, **signals)
    return StepFrame(step - 1, step, lines)


def hear(hearing: CauseFinder, steps: range, **signals: int) -> list[SlowCause]:
    return [hearing.follow(frame(step, **signals), PLACES, [SLOW], [])[0].cause for step in steps]


def test_a_signal_that_comes_late_takes_the_place_of_the_guess_soon() -> None:
    hearing = CauseFinder()
    assert set(hear(hearing, range(1, 9))) == {SlowCause.COMPUTE}
    causes = hear(hearing, range(9, 18), throttled_permille=240)
    assert causes[-1] is SlowCause.CPU_QUOTA
    assert causes.index(SlowCause.CPU_QUOTA) < 8


def test_a_few_frames_with_another_signal_change_nothing() -> None:
    hearing = CauseFinder()
    hear(hearing, range(1, 20), throttled_permille=240)
    causes = hear(hearing, range(20, 23), queued_permille=500)
    causes += hear(hearing, range(23, 40), throttled_permille=240)
    assert set(causes) == {SlowCause.CPU_QUOTA}


def test_who_is_slow_again_later_is_heard_anew() -> None:
    hearing = CauseFinder()
    hear(hearing, range(1, 20), throttled_permille=240)
    assert hearing.follow(frame(20), PLACES, [], []) == {}
    assert hear(hearing, range(21, 22))[0] is SlowCause.COMPUTE


def test_a_node_wide_finding_counts_where_half_of_its_ranks_are_slow() -> None:
    stalled = [Finding(Kind.STORAGE_STALLED, "n0", 0.0, 0.9, evidence=["data: no answer"])]

    def cause(slow: tuple[int, ...]) -> SlowCause:
        lines = {rank: line(rank, 5) for rank in PLACES}
        for rank in slow:
            lines[rank] = line(rank, 5, data=260_000)
        excesses = [excess(rank, 1040.0, 800.0) for rank in slow]
        named = CauseFinder().follow(StepFrame(4, 5, lines), PLACES, excesses, stalled)
        return named[slow[0]].cause

    assert cause((0,)) is SlowCause.DATA_LOADING
    assert cause((0, 1, 2)) is SlowCause.STORAGE
