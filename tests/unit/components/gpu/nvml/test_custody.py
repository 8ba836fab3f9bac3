"""When a child is started, ended and given up."""

from __future__ import annotations

import pytest

from holdfast_sidecar.components.gpu.nvml.process import (
    ABSENT_PAUSE_S,
    PAUSE_MOST_S,
    SOUND_S,
    START_S,
    STUCK_S,
    RestartPolicy,
    RestartStep,
    pause_s,
)

PATIENCE_S = 2.0


def fresh(now_s: float = 0.0) -> RestartPolicy:
    return RestartPolicy(PATIENCE_S).started(now_s)


def answering(until_s: float, now_s: float = 0.0) -> RestartPolicy:
    """Looked at twice a second, and heard each time."""
    custody = fresh(now_s)
    while now_s < until_s:
        now_s += 0.5
        custody = custody.looked(now_s, is_heard=True)
    return custody


def silent(custody: RestartPolicy, since_s: float, until_s: float) -> RestartPolicy:
    """Looked at twice a second, and never heard."""
    now_s = since_s
    while now_s < until_s:
        now_s += 0.5
        custody = custody.looked(now_s, is_heard=False)
    return custody


def test_a_child_is_started_at_once_and_only_one() -> None:
    assert RestartPolicy(PATIENCE_S).deed(0.0) is RestartStep.START
    assert fresh(0.0).deed(0.1) is RestartStep.NOTHING


def test_one_that_answers_is_left_alone() -> None:
    custody = answering(until_s=10.0)
    assert custody.deed(10.0) is RestartStep.NOTHING
    assert custody.silent_since_s is None


def test_one_that_falls_silent_is_told_and_ended_within_its_patience() -> None:
    custody = silent(answering(until_s=10.0), 10.0, 12.0)
    assert (custody.silent_since_s, custody.deed(12.0)) == (None, RestartStep.NOTHING)
    custody = custody.looked(12.1, is_heard=False)
    assert (custody.silent_since_s, custody.deed(12.1)) == (10.0, RestartStep.END)


def test_one_that_has_not_answered_yet_is_told_as_early_and_ended_late() -> None:
    custody = silent(fresh(0.0), 0.0, 2.5)
    assert (custody.silent_since_s, custody.deed(2.5)) == (0.0, RestartStep.NOTHING)
    custody = silent(custody, 2.5, START_S)
    assert custody.deed(START_S) is RestartStep.NOTHING
    assert custody.looked(START_S + 0.5, is_heard=False).deed(START_S + 0.5) is RestartStep.END


def test_a_sidecar_that_slept_does_not_call_its_child_silent() -> None:
    custody = answering(until_s=10.0).looked(60.0, is_heard=False)
    assert (custody.silent_since_s, custody.deed(60.0)) == (None, RestartStep.NOTHING)
    assert custody.looked(60.5, is_heard=True).silent_since_s is None


def test_nor_does_rare_looking_hide_a_silent_one() -> None:
    custody = answering(until_s=10.0).looked(20.0, is_heard=False).looked(30.0, is_heard=False)
    assert (custody.silent_since_s, custody.deed(30.0)) == (10.0, RestartStep.END)


def test_silence_stands_until_some_child_answers() -> None:
    custody = silent(answering(until_s=10.0), 10.0, 12.5).killed(12.5).buried(12.6, 12.5)
    custody = custody.started(14.0).looked(14.5, is_heard=False)
    assert custody.silent_since_s == 10.0
    assert custody.looked(15.0, is_heard=True).silent_since_s is None


def test_one_that_is_killed_and_goes_gets_its_replacement_after_a_pause() -> None:
    custody = answering(until_s=10.0).killed(12.5).buried(12.6, 12.5)
    assert custody.stuck == 0
    assert custody.deed(13.4) is RestartStep.NOTHING
    assert custody.deed(13.5) is RestartStep.START


def test_one_that_hangs_in_the_kernel_gets_one_replacement_and_no_more() -> None:
    custody = answering(until_s=10.0).killed(12.5)
    assert (custody.stuck, custody.deed(13.5)) == (1, RestartStep.START)
    custody = custody.started(13.5).killed(50.0)
    assert (custody.stuck, custody.deed(1e6)) == (2, RestartStep.NOTHING)


def test_once_a_stuck_one_goes_the_driver_is_asked_again_at_once() -> None:
    custody = answering(until_s=10.0)
    for _ in range(8):
        custody = custody.killed(12.5)
    custody = custody.buried(12.5 + STUCK_S, 12.5)
    assert custody.deed(12.5 + STUCK_S) is RestartStep.NOTHING  # seven are left
    for _ in range(6):
        custody = custody.buried(20.0, 12.5)
    assert (custody.stuck, custody.deed(20.0)) == (1, RestartStep.START)


def test_but_not_after_one_that_went_as_killed_ones_do() -> None:
    custody = fresh(0.0)
    for now_s in (0.0, 1.0, 2.0, 3.0):
        custody = custody.started(now_s).killed(now_s).buried(now_s + 0.1, now_s)
    assert custody.deed(4.0) is RestartStep.NOTHING


@pytest.mark.parametrize(
    ("failures", "expected_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0)]
)
def test_the_pause_doubles_up_to_five_minutes(failures: int, expected_s: float) -> None:
    assert pause_s(failures) == expected_s
    assert pause_s(10**6) == PAUSE_MOST_S


def test_one_that_was_sound_for_long_is_followed_soon() -> None:
    custody = fresh(0.0)
    for _ in range(5):
        custody = custody.started(0.0).ended(0.0, is_gone=True)
    custody = custody.started(100.0).looked(101.0, is_heard=True)
    assert custody.ended(101.0 + SOUND_S, is_gone=True).due_s == 101.0 + SOUND_S + 1.0
    assert custody.ended(102.0, is_gone=True).due_s == 102.0 + 32.0


def test_a_machine_without_a_driver_is_asked_rarely_and_has_not_failed() -> None:
    custody = fresh(0.0).looked(0.1, is_heard=True).absent(0.1, is_gone=True)
    assert custody.failures == 0
    assert custody.deed(ABSENT_PAUSE_S) is RestartStep.NOTHING
    assert custody.deed(0.1 + ABSENT_PAUSE_S) is RestartStep.START
