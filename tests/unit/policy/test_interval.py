"""How often to save: the formulas against worked examples, and which bound applies."""

from __future__ import annotations

import pytest

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import (
    DAY_S,
    CheckpointCost,
    chance_of_so_many,
    choose,
    daly_s,
    judge_failure_rate,
    loss_per_failure_s,
    waste,
    young_s,
)

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("blocked_s", "mtbf_s", "expected_s", "waste_share"),
    [
        (30.0, 3.09 * HOUR_S, 817, 0.073),
        (1.0, 3.09 * HOUR_S, 149, 0.013),
        (0.1, 3.09 * HOUR_S, 47, 0.0042),
        (0.02, 3.09 * HOUR_S, 21, 0.0019),
        (30.0, 18 * 60.0, 255, 0.24),
        (1.0, 18 * 60.0, 46, 0.043),
    ],
)
def test_young_gives_the_published_intervals(
    blocked_s: float, mtbf_s: float, expected_s: float, waste_share: float
) -> None:
    interval_s = young_s(blocked_s, mtbf_s)
    assert interval_s == pytest.approx(expected_s, rel=0.015)
    lost_s = interval_s / 2
    assert waste(interval_s, blocked_s, lost_s, mtbf_s) == pytest.approx(waste_share, rel=0.05)


def test_daly_is_near_young_when_failures_are_rare_and_corrects_it_when_not() -> None:
    assert daly_s(0.02, 3.09 * HOUR_S) == pytest.approx(young_s(0.02, 3.09 * HOUR_S), rel=0.01)
    # 30 s against 18 minutes, by hand: 254.6 (1 + 0.1179 / 3 + 0.01389 / 9) - 30
    assert daly_s(30.0, 1080.0) == pytest.approx(234.99, abs=0.05)


def test_a_checkpoint_as_costly_as_two_failures_is_taken_once_per_failure() -> None:
    assert daly_s(200.0, 100.0) == 100.0
    assert daly_s(201.0, 100.0) == 100.0


def settings(**given: float) -> CheckpointSettings:
    return CheckpointSettings(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "cost", "mtbf_s", "target_s", "bound"),
    [
        ({"every_s": 7.0}, CheckpointCost(1.0, 100.0), HOUR_S, 7.0, "every_s"),
        ({}, None, HOUR_S, 60.0, "unmeasured"),
        ({}, CheckpointCost(0.01, 1.0), 100.0, 60.0, "least_every_s"),
        ({}, CheckpointCost(30.0, 31.0), 500 * HOUR_S, 3600.0, "most_every_s"),
        ({}, CheckpointCost(0.1, 200.0), HOUR_S, 240.0, "write"),
        ({}, CheckpointCost(0.1, 4000.0), 500 * HOUR_S, 4800.0, "write"),
    ],
)
def test_the_bounds_hold_and_the_reason_is_told(
    given: dict[str, float], cost: CheckpointCost | None, mtbf_s: float, target_s: float, bound: str
) -> None:
    chosen = choose(settings(**given), cost, mtbf_s)
    assert chosen.target_s == pytest.approx(target_s)
    assert chosen.bound == bound


def test_between_the_bounds_the_optimum_is_taken() -> None:
    chosen = choose(settings(), CheckpointCost(1.0, 5.0), 3.09 * HOUR_S)
    assert chosen.target_s == chosen.daly_s == pytest.approx(148.6, abs=0.2)
    assert chosen.bound == "optimum"


def test_a_failure_costs_half_an_interval_and_what_was_being_written() -> None:
    assert loss_per_failure_s(100.0, CheckpointCost(0.1, 20.0)) == 70.0


def test_without_history_the_published_rate_is_taken_for_every_rank() -> None:
    rate = judge_failure_rate(16384, 0.0, (), 1e9)
    assert rate.mtbf_s == pytest.approx(3.09 * HOUR_S, rel=0.01)
    assert "2,111" in rate.basis


def test_time_without_failures_lengthens_it() -> None:
    begun = judge_failure_rate(1024, 1e9, (), 1e9 + 10)
    later = judge_failure_rate(1024, 1e9, (), 1e9 + 10 * DAY_S)
    assert later.mtbf_s > 2 * begun.mtbf_s


def test_a_usual_number_of_own_failures_is_weighed_with_the_published_rate() -> None:
    """1,024 ranks for 2.06 days: one failure is what is to be expected."""
    rate = judge_failure_rate(1024, 1e9, (1e9 + DAY_S / 2,), 1e9 + 2.0615 * DAY_S)
    assert rate.mtbf_s == pytest.approx(2.0615 * DAY_S, rel=0.01)


def test_a_job_that_fails_far_more_often_than_others_is_judged_by_itself() -> None:
    rate = judge_failure_rate(2, 1e9, [1e9 + 600 * i for i in range(1, 6)], 1e9 + HOUR_S)
    assert rate.mtbf_s == pytest.approx(HOUR_S / 5.5)
    assert rate.basis == "5 failures in 1.0 h, far more than is usual"


def test_what_broke_since_yesterday_counts_more_than_a_quiet_month() -> None:
    now = 1e9 + 30 * DAY_S
    rate = judge_failure_rate(8, 1e9, [now - 100 * i for i in range(1, 6)], now)
    assert rate.mtbf_s == pytest.approx(DAY_S / 5.5)
    old = judge_failure_rate(8, 1e9, [1e9 + 100 * i for i in range(1, 6)], now)
    assert old.mtbf_s > 4 * DAY_S


def test_the_chance_of_so_many_failures_is_poissons() -> None:
    assert chance_of_so_many(0.0, 0) == 1.0
    assert chance_of_so_many(0.0, 1) == 0.0
    assert chance_of_so_many(2.0, 1) == pytest.approx(0.8647, abs=1e-4)
    assert chance_of_so_many(2.0, 4) == pytest.approx(0.1429, abs=1e-4)
    assert chance_of_so_many(900.0, 700) == pytest.approx(1.0)
