from __future__ import annotations

import pytest
from tests.unit.performance.stragglers.parallel import frame, laid_out

from holdfast_sidecar.performance.stragglers.groups import lay_out
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import model, pipeline_us


def test_replicas_meet_at_the_slowest() -> None:
    one = model(frame({0: 100, 1: 80, 2: 90}), lay_out(laid_out(dp=3)))
    assert one.modelled_us == 100_000
    assert one.without({0: 80_000.0}) == one.total_us - 10_000


def test_ranks_of_a_tensor_group_meet_in_each_layer() -> None:
    one = model(frame({0: 100, 1: 80, 2: 90, 3: 80}), lay_out(laid_out(dp=2, tp=2)))
    assert one.without({1: 0.0}) == one.total_us
    assert one.without({0: 80_000.0}) == one.total_us - 10_000


def test_a_pipeline_takes_as_long_as_its_slowest_stage_lets_it() -> None:
    places = laid_out(dp=2, pp=2)
    own = {0: 80, 1: 80, 2: 80, 3: 100}
    assert model(frame(own), lay_out(places)).modelled_us == 100_000
    known = model(frame(own), lay_out(places), filling=1 / 4)
    assert known.modelled_us == 180_000 / 4 + 100_000 * 3 / 4


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (8, 8)])
def test_stages_that_are_alike_take_the_known_formula(stages: int, micro_batches: int) -> None:
    m, p = micro_batches, stages
    assert pipeline_us([90.0] * p, 1 / m) == pytest.approx((m + p - 1) / m * 90.0)


def test_a_model_that_says_more_than_was_measured_is_scaled_to_it() -> None:
    one = model(frame({0: 200, 1: 100}, total_ms=100), lay_out(laid_out(dp=2)))
    assert one.without({0: 100_000.0}) == 50_000


def test_ranks_whose_place_in_the_layout_is_not_known_are_replicas() -> None:
    places = {rank: RankPlace(rank, "n") for rank in range(3)}
    one = model(frame({0: 100, 1: 80, 2: 90}), lay_out(places))
    assert one.without({0: 80_000.0}) == one.total_us - 10_000


def test_who_told_nothing_of_a_frame_holds_nobody_up_in_it() -> None:
    one = model(frame({1: 80, 2: 90}), lay_out(laid_out(dp=3)))
    assert one.modelled_us == 90_000
    assert one.without({0: 500_000.0, 77: 1.0}) > one.total_us


def test_a_model_that_was_packed_says_the_same() -> None:
    own = {rank: 60.0 + 7 * rank % 31 for rank in range(16) if rank != 5}
    whole = model(frame(own), lay_out(laid_out(dp=4, tp=2, pp=2)), filling=0.2, even_filling=0.3)
    packed = whole.packed()
    assert dict(packed.own) == dict(whole.own)
    assert (5 in packed.own, 77 in packed.own, packed.own.get(5, 1.0)) == (False, False, 1.0)
    for quick in ({0: 10_000.0}, {3: 1.5, 12: 0.1, 5: 2.0}, {77: 1.0}, {}):
        assert packed.without(quick) == whole.without(quick)
    assert packed.stage_times() == whole.stage_times()
    assert packed.packed().own == packed.own
