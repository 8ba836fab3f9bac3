from __future__ import annotations

import pytest

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.stragglers.cost import RANKS_TOLD, SET_ASIDE, LostTime
from holdfast_sidecar.records.formatting import money
from holdfast_sidecar.records.steps import SlowCause, SlownessReport


def charge(toll: LostTime, cause: SlowCause, lost_s: float, since_step: int = 1) -> bool:
    is_new = toll.open(["rank 1"], cause, since_step)
    toll.charge(["rank 1"], lost_s)
    return is_new


def test_a_cause_that_turns_out_to_be_another_takes_its_cost_along() -> None:
    toll = LostTime()
    assert charge(toll, SlowCause.COMPUTE, 2.0)
    assert not charge(toll, SlowCause.GPU_CLOCK, 3.0)
    assert toll.by_cause == {"gpu_clock": 5.0}
    assert toll.lost_s(["rank 1"]) == 5.0
    assert toll.charged == {"gpu_clock": 3.0, "compute": 2.0}  # a counter never falls


def test_what_is_over_stays_in_the_sum() -> None:
    toll = LostTime()
    charge(toll, SlowCause.COMPUTE, 2.0)
    toll.close_others([], step=20)
    assert charge(toll, SlowCause.LINK, 1.0, since_step=30)
    assert toll.by_cause == {"compute": 2.0, "link": 1.0}
    assert toll.lost_s(["rank 1"]) == 1.0
    assert toll.since_step(["rank 1"]) == 30


def test_what_nobody_spoke_of_for_a_moment_goes_on_where_it_was() -> None:
    toll = LostTime()
    charge(toll, SlowCause.COMPUTE, 2.0, since_step=8)
    toll.close_others([], step=20)
    assert toll.by_cause == {"compute": 2.0}
    assert charge(toll, SlowCause.COMPUTE, 1.0, since_step=8)
    assert toll.lost_s(["rank 1"]) == 3.0
    assert toll.by_cause == {"compute": 3.0}


def test_what_lasts_is_not_younger_for_having_been_found_again() -> None:
    toll = LostTime()
    charge(toll, SlowCause.COMPUTE, 2.0, since_step=8)
    charge(toll, SlowCause.COMPUTE, 2.0, since_step=50)
    assert toll.since_step(["rank 1"]) == 8


def test_another_attempt_begins_new_accounts_and_keeps_the_sums() -> None:
    toll = LostTime()
    charge(toll, SlowCause.COMPUTE, 2.0, since_step=8)
    toll.close_all()
    charge(toll, SlowCause.COMPUTE, 1.0, since_step=1)
    assert toll.lost_s(["rank 1"]) == 1.0
    assert toll.by_cause == {"compute": 3.0}


def test_accounts_that_may_come_back_are_few_and_none_is_lost() -> None:
    toll = LostTime()
    for rank in range(1000):
        toll.open([f"rank {rank}"], SlowCause.COMPUTE, rank)
        toll.charge([f"rank {rank}"], 1.0)
        toll.close_others([], rank)
    assert len(toll._aside) == SET_ASIDE
    assert toll.by_cause == {"compute": 1000.0}


def test_a_new_leader_goes_on_from_what_was_told_last() -> None:
    toll = LostTime()
    toll.resume(
        SlownessReport(
            3, 10, 8, 0.0, watched_s=90.0, lost_s={"link": 7.0}, lost_by_rank={"1 on a": 2.0}
        )
    )
    toll.watch(10.0)
    charge(toll, SlowCause.LINK, 1.0)
    toll.charge_ranks(["1 on a"], 1.0)
    assert toll.watched_s == 100.0
    assert toll.by_cause == {"link": 8.0}
    assert toll.charged == {"link": 8.0}
    assert toll.by_rank == {"1 on a": 3.0}
    toll.resume(SlownessReport(3, 10, 8, 0.0, lost_s={"link": 7.0}, charged_s={"compute": 7.0}))
    charge(toll, SlowCause.LINK, 1.0)
    assert toll.charged == {"compute": 7.0, "link": 1.0}
    assert toll.by_cause == {"link": 8.0}


def test_of_ranks_the_dearest_few_are_told_and_kept() -> None:
    toll = LostTime()
    for rank in range(5000):
        toll.charge_ranks([f"{rank} on a"], 1.0 + rank % 7)
    toll.charge_ranks(["x on b"], 100.0)
    assert len(toll.by_rank) == RANKS_TOLD
    assert next(iter(toll.by_rank)) == "x on b"
    assert len(toll._by_rank) <= 128


def test_lost_time_is_money_where_a_price_is_known() -> None:
    assert money(1800.0, 64, CostSettings(per_gpu_hour=2.5)) == pytest.approx(80.0)
    assert money(1800.0, 64, CostSettings()) is None
