"""Joules by rank, step and token, out of counters that do not always behave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.components.gpu.nodes import company, gpu, reading, seat, without

from holdfast_sidecar.components.gpu.history import (
    EnergyAccount,
    GpuHistory,
    RankProgress,
    follow_energy,
    follow_gpus,
)
from holdfast_sidecar.components.gpu.ownership import GpuUsers, tie_up
from holdfast_sidecar.components.gpu.readings import Gpu, Signal

BOTH = company(seat(0), seat(1))


def two(t: float) -> list[Gpu]:
    """GPU 0 draws 400 W, GPU 1 draws 600 W."""
    return [gpu(0, ENERGY=1e6 + 400 * t), gpu(1, ENERGY=7e6 + 600 * t)]


def steps(t: float) -> dict[int, RankProgress]:
    """A step every two seconds, of 1,000 tokens on rank 0; rank 1 tells none."""
    done = int(t // 2)
    return {0: RankProgress(1000, 77, done, 1000 * done), 1: RankProgress(1001, 77, done)}


def account(
    at: Callable[[float], list[Gpu]] = two,
    until_s: int = 60,
    who: GpuUsers = BOTH,
    progress: Callable[[float], dict[int, RankProgress]] = steps,
) -> EnergyAccount:
    kept, history = EnergyAccount(), GpuHistory()
    for t in range(until_s + 1):
        one = reading(*at(t), at_s=100.0 + t)
        history = follow_gpus(history, one)
        kept = follow_energy(kept, one, history, tie_up(one, who), progress(t))
    return kept


def test_a_rank_spends_what_its_gpu_counts() -> None:
    kept = account()
    assert kept.of(0).joules == pytest.approx(400 * 60)
    assert kept.of(1).joules == pytest.approx(600 * 60)
    assert kept.of(0).power_w == pytest.approx(400)
    assert kept.of(0).step_joules == pytest.approx(800)
    assert kept.of(0).token_joules == pytest.approx(0.8)
    assert kept.of(0).tokens_per_s == pytest.approx(500)


def test_a_rank_that_tells_no_tokens_has_no_joules_of_them() -> None:
    assert account().of(1).token_joules is None
    assert account().of(1).tokens_per_s is None


def test_no_step_is_dearer_for_the_half_of_it_that_was_seen() -> None:
    for until_s in range(30, 60):
        assert account(until_s=until_s).of(0).step_joules == pytest.approx(800)


def test_steps_longer_than_the_window_have_their_energy_too() -> None:
    def slow(t: float) -> dict[int, RankProgress]:
        return {0: RankProgress(1000, 77, int(t // 200))}

    assert account(progress=slow, until_s=450).of(0).step_joules == pytest.approx(400 * 200)


def test_before_two_steps_have_ended_there_is_no_energy_of_a_step() -> None:
    assert account(until_s=3).of(0).step_joules is None


def test_a_gpu_that_two_ranks_share_is_counted_by_halves() -> None:
    def shared(t: float) -> list[Gpu]:
        return [gpu(0, users=[1000, 1001], ENERGY=400 * t)]

    kept = account(shared)
    assert kept.of(0).joules == kept.of(1).joules == pytest.approx(200 * 60)
    assert kept.of(1).power_w == pytest.approx(200)


def test_a_rank_with_two_gpus_spends_both_and_its_power_is_of_both_or_unknown() -> None:
    one = company(seat(0))

    def both(t: float) -> list[Gpu]:
        first, second = two(t)
        return [first, gpu(1, users=[1000], ENERGY=second.values[Signal.ENERGY])]

    assert account(both, who=one).of(0).joules == pytest.approx(1000 * 60)
    assert account(both, who=one).of(0).power_w == pytest.approx(1000)


def test_a_counter_that_begins_anew_makes_no_energy_and_takes_none() -> None:
    def reloaded(t: float) -> list[Gpu]:
        return [gpu(0, ENERGY=1e6 + 400 * t if t < 30 else 400 * (t - 30)), two(t)[1]]

    kept = account(reloaded)
    assert kept.of(0).joules == pytest.approx(400 * 59)
    assert kept.of(0).power_w == pytest.approx(400)


def test_a_counter_that_jumps_is_not_believed() -> None:
    def jumps(t: float) -> list[Gpu]:
        return [gpu(0, ENERGY=400 * t + (1e12 if t >= 30 else 0)), two(t)[1]]

    assert account(jumps).of(0).joules == pytest.approx(400 * 59)


def test_a_gpu_that_was_silent_for_a_while_is_counted_when_it_answers_again() -> None:
    def silent(t: float) -> list[Gpu]:
        first, second = two(t)
        return [without(first, Signal.ENERGY) if 20 <= t < 40 else first, second]

    assert account(silent).of(0).joules == pytest.approx(400 * 60)


def test_a_rank_that_restarts_goes_on_counting_and_its_steps_begin_anew() -> None:
    def restarts(t: float) -> dict[int, RankProgress]:
        return steps(t) if t < 30 else {0: RankProgress(1000, 78, int((t - 30) // 2), 0)}

    kept = account(progress=restarts)
    assert kept.of(0).joules == pytest.approx(400 * 60)
    assert kept.of(0).step_joules == pytest.approx(800)
    assert kept.of(0).points[0].at_s > 130
    assert kept.of(1).joules == pytest.approx(600 * 29)  # it was not started again


def test_what_nobody_meters_is_unknown_and_not_nought() -> None:
    bare = [without(one, Signal.ENERGY) for one in two(0)]
    kept = account(lambda _: bare)
    assert (kept.of(0).joules, kept.of(0).power_w, kept.of(0).step_joules) == (None, None, None)
    assert account(who=company()).of(0).joules is None
    assert account().of(7).joules is None


def test_what_starting_cost_is_in_no_step() -> None:
    def starts_late(t: float) -> dict[int, RankProgress]:
        return {0: RankProgress(1000, 77, max(0, int((t - 40) // 2)))}

    assert account(progress=starts_late).of(0).step_joules == pytest.approx(800)
