"""How well the machine is used, and what is said where that isn't known."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast_sidecar.performance.stragglers import step_model
from holdfast_sidecar.performance.stragglers.efficiency import (
    MISSING,
    NO_FLOPS,
    NO_LOADER,
    NO_PEAK,
    NO_STEPS,
    NO_TOKENS,
    NO_WAITS,
    TOO_FEW,
    USUAL_FRAMES,
    WARM_UP_FRAMES,
    EfficiencyWatch,
)
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import Efficiency, ProcessGroup, StepLine

NOTHING = StepLine(*[0] * len(StepLine._fields))


def line(rank: int, **known: int) -> StepLine:
    usual = {
        "total": 100_000,
        "data": 5_000,
        "forward": 25_000,
        "backward": 50_000,
        "communicating": 20_000,
        "waits_seen": 1,
        "steps": 1,
        "stride": 1,
    }
    return NOTHING._replace(rank=rank, **{**usual, **known})


def frame(*lines: StepLine, step: int = 1) -> StepFrame:
    return StepFrame(step - 1, step, {line.rank: line for line in lines})


def report(rank: int, **known: float) -> RankReport:
    told: dict[str, Any] = {"model_flops": 4e12, "hardware_flops": 5e12, "peak_flops": 1e14}
    return RankReport(rank, rank, 1, 0, "forward", 0.0, 0.1, 0.1, **{**told, **known})


def reports(count: int, **known: float) -> dict[int, RankReport]:
    return {rank: report(rank, **known) for rank in range(count)}


def places(count: int) -> dict[int, RankPlace]:
    return {rank: RankPlace(rank, "a") for rank in range(count)}


def told_after(
    watch: EfficiencyWatch,
    one: StepFrame,
    where: Mapping[int, RankPlace],
    told: Mapping[int, RankReport],
) -> Efficiency:
    watch.follow(one, where, max(len(where), len(told)))
    return watch.tell(told)


def judged(*lines: StepLine, of: Mapping[int, RankReport] | None = None) -> Efficiency:
    told = reports(len(lines)) if of is None else of
    return told_after(EfficiencyWatch(), frame(*lines), places(len(told)), told)


def test_utilisation_is_what_steps_need_by_what_devices_could_do_meanwhile() -> None:
    found = judged(line(0), line(1))
    assert (found.mfu, found.hfu) == pytest.approx((0.4, 0.5))
    assert found.step_s == pytest.approx(0.1)


def test_without_what_is_computed_again_the_hardware_s_is_not_known() -> None:
    found = judged(line(0), line(1), of=reports(2, hardware_flops=0.0))
    assert found.mfu == pytest.approx(0.4)
    assert found.hfu is None


def test_ranks_with_different_devices_and_stages_count_with_what_they_have() -> None:
    told = {0: report(0), 1: report(1, model_flops=1e12, hardware_flops=1e12, peak_flops=3e14)}
    assert judged(line(0), line(1), of=told).mfu == pytest.approx(5e12 / 0.1 / 4e14)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"model_flops": 0.0, "hardware_flops": 0.0}, NO_FLOPS),
        ({"peak_flops": 0.0}, NO_PEAK),
    ],
)
def test_without_either_there_is_none_and_it_is_said_why(known: dict[str, float], why: str) -> None:
    found = judged(line(0), of=reports(1, **known))
    assert (found.mfu, found.hfu) == (None, None)
    assert why in found.unknown


def test_a_rank_of_which_nothing_is_known_is_left_out_on_both_sides_and_that_is_said() -> None:
    told = {0: report(0), 1: report(1, peak_flops=0.0)}
    found = judged(line(0), line(1), of=told)
    assert found.mfu == pytest.approx(0.4)
    assert "utilisation: 1 of 2 ranks are left out, of which it is not known" in found.unknown


def test_the_tokens_of_all_ranks_add_up() -> None:
    found = judged(
        line(0, tokens=1000, work_reported=1),
        line(1, tokens=0),  # its neighbour in a tensor-parallel pair tells them
        line(2, tokens=1000, work_reported=1),
    )
    assert found.tokens_per_s == pytest.approx(20_000)


def test_elements_seen_in_a_batch_are_no_tokens() -> None:
    found = judged(line(0, tokens=1000))
    assert found.tokens_per_s is None
    assert NO_TOKENS in found.unknown


def test_when_a_rank_is_missing_no_sum_of_tokens_is_told() -> None:
    told = line(0, tokens=1000, work_reported=1)
    found = judged(told, of=reports(2))
    assert found.tokens_per_s is None
    assert MISSING in found.unknown


def test_the_shares_are_those_of_the_rank_in_the_middle() -> None:
    found = judged(line(0, communicating=0), line(1), line(2, communicating=90_000))
    assert found.communication_share == pytest.approx(0.2)
    assert found.data_share == pytest.approx(0.05)


def test_waits_that_hide_in_backward_passes_are_no_small_share_of_communication() -> None:
    found = judged(line(0, waits_seen=0), line(1, waits_seen=0))
    assert found.communication_share is None
    assert NO_WAITS in found.unknown
    alone = judged(line(0, waits_seen=0))
    assert alone.communication_share is not None


def follow(
    watch: EfficiencyWatch, step_us: int, frames: int, step: int, **known: int
) -> Efficiency:
    found = Efficiency()
    for number in range(frames):
        one = frame(line(0, total=step_us, **known), step=step + number)
        found = told_after(watch, one, places(1), reports(1))
    return found


BASE = WARM_UP_FRAMES + USUAL_FRAMES


def test_pace_is_throughput_now_against_the_beginning_after_its_warm_up() -> None:
    watch = EfficiencyWatch()
    follow(watch, 400_000, WARM_UP_FRAMES, step=1)
    assert TOO_FEW in follow(watch, 100_000, USUAL_FRAMES - 1, step=20).unknown
    assert follow(watch, 100_000, 1, step=70).pace == pytest.approx(1.0)
    assert follow(watch, 125_000, USUAL_FRAMES, step=100).pace == pytest.approx(0.8)


@pytest.mark.parametrize("work_reported", [0, 1])
def test_longer_steps_of_more_work_are_no_loss(work_reported: int) -> None:
    watch = EfficiencyWatch()
    follow(watch, 100_000, BASE, step=1, tokens=1000, work_reported=work_reported)
    found = follow(watch, 200_000, USUAL_FRAMES, step=100, tokens=2000, work_reported=work_reported)
    assert found.pace == pytest.approx(1.0)


def test_pace_is_that_of_usual_steps_and_one_odd_frame_changes_nothing_of_it() -> None:
    watch = EfficiencyWatch()
    follow(watch, 100_000, BASE, step=1)
    assert follow(watch, 900_000, 3, step=100).pace == pytest.approx(1.0)


def test_steps_that_take_long_now_and_then_count_for_what_they_take() -> None:
    watch = EfficiencyWatch()
    for number in range(1, 101):
        waits = 420_000 if number % 10 == 0 else 20_000
        lines = [
            line(rank, total=80_000 + waits, communicating=waits if rank else 20_000)
            for rank in range(4)
        ]
        lines[0] = lines[0]._replace(forward=25_000 + waits - 20_000)
        found = told_after(watch, frame(*lines, step=number), places(4), reports(4))
    assert found.step_s == pytest.approx(0.14)
    assert found.usual_step_s == pytest.approx(0.1)
    assert found.communication_share == pytest.approx(0.06 / 0.14)
    assert found.parts_us["communicating"] == pytest.approx(60_000)
    assert found.most_rank["forward"] == 0
    assert found.most_us["forward"] == pytest.approx(65_000)
    assert found.from_step == 1


def test_what_is_saved_and_evaluated_in_steps_of_its_own_counts_too() -> None:
    watch = EfficiencyWatch()
    for number in range(1, 101):
        lines = [line(rank) for rank in range(2)]
        if number % 10 == 0:
            lines = [one._replace(steps=0, total=0, lost=1_000_000) for one in lines]
            watch.hear(lines)
            continue
        watch.hear(lines)
        found = told_after(watch, frame(*lines, step=number), places(2), reports(2))
    assert found.parts_us["lost"] == pytest.approx(100_000, rel=0.1)
    assert found.step_s == pytest.approx(0.2, rel=0.1)


def test_of_thousands_of_ranks_some_tell_the_middle_one() -> None:
    lines = [line(rank, forward=25_000 + rank) for rank in range(4096)]
    found = judged(*lines, of={})
    assert found.parts_us["forward"] == pytest.approx(25_000 + 2048, rel=0.01)
    assert found.most_us == {}


def test_another_attempt_begins_anew() -> None:
    watch = EfficiencyWatch()
    follow(watch, 100_000, BASE, step=1)
    watch.begin()
    found = follow(watch, 50_000, 1, step=900)
    assert found.step_s == pytest.approx(0.05)
    assert (found.pace, found.from_step) == (None, 900)


def test_before_anybody_told_of_ordinary_steps_nothing_is_known() -> None:
    found = told_after(EfficiencyWatch(), frame(), places(2), reports(2))
    assert found == Efficiency(unknown=[NO_STEPS])
    assert judged(line(0, total=0, steps=0)) == Efficiency(unknown=[NO_STEPS])


def staged(rank: int, stage: int, stages: int = 2) -> RankPlace:
    pipeline = ProcessGroup("mesh_pp", "x", stages)
    return RankPlace(
        rank,
        "a",
        f"pp {stage}",
        {"pp": stage},
        {"pp": stages},
        (ProcessGroup("mesh_dp", "y", 4), pipeline) + (None,) * 2,
    )


STAGED = {0: staged(0, 0), 1: staged(1, 1)}


def staged_line(rank: int, own: int, gradients: int = 0, **known: int) -> StepLine:
    waits = 100_000 - own
    parts = {"data": 0, "forward": own, "backward": 0, "communicating": waits}
    return line(rank, **{**parts, "wait_1": gradients, "wait_2": waits - gradients, **known})


def bubble_of(*lines: StepLine) -> tuple[float | None, str]:
    return step_model.bubble_share(lines, STAGED)


def test_the_bubble_is_what_a_step_lasts_longer_than_its_largest_stage_works() -> None:
    share, why = bubble_of(staged_line(0, 80_000), staged_line(1, 80_000))
    assert share == pytest.approx(0.2)
    assert why == ""


def test_that_a_smaller_stage_stands_is_no_bubble() -> None:
    assert bubble_of(staged_line(0, 80_000), staged_line(1, 40_000))[0] == pytest.approx(0.2)


def test_waiting_for_the_gradients_of_other_copies_is_no_bubble() -> None:
    lines = (staged_line(0, 70_000, gradients=10_000), staged_line(1, 50_000))
    assert bubble_of(*lines)[0] == pytest.approx(0.2)


def test_a_stage_of_which_nobody_told_or_waits_that_are_hidden_leave_it_unknown() -> None:
    assert bubble_of(staged_line(0, 80_000)) == (None, step_model.NO_STAGE)
    hidden = (staged_line(0, 80_000, waits_seen=0), staged_line(1, 80_000))
    assert bubble_of(*hidden) == (None, step_model.NO_WAITS)


def test_without_a_pipeline_there_is_no_bubble_and_nothing_to_say() -> None:
    found = judged(line(0), line(1))
    assert found.bubble_share is None
    assert not any("bubble" in why for why in found.unknown)


def test_thousands_of_ranks_are_no_burden() -> None:
    ranks = 4096
    told, where = reports(ranks), places(ranks)
    one = frame(*(line(rank, tokens=10, work_reported=1) for rank in range(ranks)))
    watch = EfficiencyWatch()
    began_s = time.process_time()
    told_after(watch, one, where, told)
    assert time.process_time() - began_s < 0.1  # a tenth of what all judging may take of a second


def test_what_no_loader_gave_is_not_known_to_be_nothing() -> None:
    found = judged(line(0, data=0), line(1, data=0))
    assert found.data_share is None
    assert NO_LOADER in found.unknown
    some = judged(line(0, data=0), line(1, data=4000))
    assert some.data_share is not None
    assert NO_LOADER not in some.unknown
