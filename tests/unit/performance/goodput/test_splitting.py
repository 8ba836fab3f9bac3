"""How pending time is put down to categories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.records.slow_job import STANDING

from holdfast_sidecar.performance.goodput import splitting
from holdfast_sidecar.performance.goodput.splitting import Split, StepShares
from holdfast_sidecar.policy.hardware import STILL_RAN
from holdfast_sidecar.records.account import PENDING, Account, Category
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.account import Turn, turned

S = 1_000_000
TIMES = StepShares(50, 100_000.0, {Category.DATA_WAIT: 0.2, Category.SAVING: 0.1})
TRAINING = Account(0, 0, PENDING, run="r", attempt=1, split_attempt=1, gpus=2, pending_us=10 * S)


def spent(split: Split, pending_us: int = 10 * S) -> dict[str, float]:
    """Seconds by category, once the store did it."""
    fields = {"at": "5", "began": "5", "open": PENDING, "gpus": "1", PENDING: str(pending_us)}
    turn = Turn(PENDING, moves=split.moves, shares=split.shares)
    after = turned(fields, turn, 5)
    found = {name[2:]: int(text) / S for name, text in after.items() if name.startswith("s:")}
    return {**found, PENDING: int(after[PENDING]) / S}


def test_steps_are_split_by_the_shares_that_were_told_and_the_rest_is_productive() -> None:
    split = splitting.at_steps_end(TRAINING, TIMES, 50, 0.0, None)
    assert spent(split) == {"data_wait": 2.0, "saving": 1.0, "productive": 7.0, PENDING: 0.0}
    assert split.is_at_step


def test_what_the_first_steps_took_more_than_those_after_them_is_warm_up() -> None:
    fresh = replace(TRAINING, split_attempt=0)
    split = splitting.at_steps_end(fresh, TIMES, 40, 0.0, None)
    assert spent(split)["warmup"] == pytest.approx(6.0)
    assert spent(split)["productive"] == pytest.approx(2.8)
    quick = splitting.at_steps_end(fresh, TIMES, 100, 0.0, None)
    assert "warmup" not in spent(quick)


def test_what_slowness_cost_is_taken_from_productive_time_and_never_told_twice() -> None:
    split = splitting.at_steps_end(TRAINING, TIMES, 50, 0.0, 3.0)
    assert spent(split)["straggler"] == pytest.approx(3.0)
    assert spent(split)["productive"] == pytest.approx(4.0)
    assert split.toll_us == 3 * S
    later = replace(TRAINING, toll_us=3 * S)
    assert "straggler" not in spent(splitting.at_steps_end(later, TIMES, 60, 0.0, 3.0))


def test_what_does_not_fit_is_carried_on_to_later_steps() -> None:
    split = splitting.at_steps_end(TRAINING, TIMES, 50, 0.0, 30.0)
    assert spent(split)["straggler"] == pytest.approx(7.0)
    assert split.toll_us == pytest.approx(7 * S, abs=2)
    rest = splitting.at_steps_end(replace(TRAINING, toll_us=7 * S), TIMES, 60, 0.0, 8.0)
    assert spent(rest)["straggler"] == pytest.approx(1.0)


def test_a_judge_that_counts_anew_owes_nothing() -> None:
    split = splitting.at_steps_end(replace(TRAINING, toll_us=9 * S), TIMES, 50, 0.0, 1.0)
    assert "straggler" not in spent(split)
    assert split.toll_us == S


def test_what_others_wait_for_while_one_saves_or_evaluates_is_no_straggler_s() -> None:
    lost = {"cpu_quota": 4.0, "evaluation": 2.0, "saving": 1.0, "recompilation": 1.0}
    assert splitting.lost_time_of(replace(STANDING, lost_s=lost)) == 4.0
    assert splitting.lost_time_of(None) is None


def incident(cause: str, **given: object) -> Incident:
    told = Incident("i", 1, cause, since_unix_s=1000.0, detected_unix_s=1003.0)
    return replace(told, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", ["hang", "stall", "data_stall", "crash", "node_lost", "gpu"])
def test_at_a_failure_the_time_since_its_onset_was_a_hang_that_nobody_saw(cause: str) -> None:
    split = splitting.at_attempts_end(TRAINING, TIMES, incident(cause), 1004.0)
    told = spent(split)
    assert (told["draining"], told["hang_undetected"]) == (1.0, 3.0)
    assert told["data_wait"] == pytest.approx(1.2)
    assert told["productive"] == pytest.approx(4.2)
    assert told[PENDING] == 0


def test_it_never_takes_more_than_there_is() -> None:
    told = spent(splitting.at_attempts_end(TRAINING, TIMES, incident("stall"), 1003.0), 2 * S)
    assert told == {"hang_undetected": 2.0, PENDING: 0.0}


@pytest.mark.parametrize(
    "one",
    [
        incident("straggler"),
        incident("restart"),
        incident("grow"),
        incident("nonfinite"),
        incident("gpu", evidence=["Xid 94", STILL_RAN]),
    ],
    ids=lambda one: one.cause,
)
def test_where_steps_were_made_until_the_end_nothing_stood(one: Incident) -> None:
    assert "hang_undetected" not in spent(splitting.at_attempts_end(TRAINING, TIMES, one, 1003.0))


def test_an_attempt_that_ends_before_anything_was_told_of_it_never_got_warm() -> None:
    fresh = replace(TRAINING, split_attempt=0)
    assert spent(splitting.at_attempts_end(fresh, None, None, 0.0))["warmup"] == 10.0
    known = splitting.at_attempts_end(TRAINING, None, None, 0.0)
    assert spent(known)["productive"] == 10.0


def test_steps_of_which_nothing_is_told_are_productive_after_a_while() -> None:
    assert not splitting.is_untold(5, 60.0)
    assert not splitting.is_untold(500, 1.0)
    assert splitting.is_untold(20, 5.0)
    assert spent(splitting.all_productive())["productive"] == 10.0
