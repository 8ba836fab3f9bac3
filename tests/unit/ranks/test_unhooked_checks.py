"""Ranks without hooks: what may be said of them from outside, and how surely."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from holdfast_sidecar.ranks.unhooked import (
    OutsideHistory,
    OutsideLook,
    OutsideRank,
    find_outside_troubles,
    follow_outside,
)
from holdfast_sidecar.records.findings import Finding, Kind, Moment

Story = Callable[[float], OutsideLook]


def rank(number: int) -> OutsideRank:
    return OutsideRank(number, number, 100 + number, 5)


def busy(number: int) -> Story:
    return lambda at_s: OutsideLook(
        rank(number), at_s, state="R", cpu_ticks=int(at_s * 90), io_bytes=int(at_s * 1e6)
    )


def resting(number: int, since_s: float = 0.0, waits_in: str = "ep_poll", unread: int = 0) -> Story:
    def look(at_s: float) -> OutsideLook:
        worked_s = min(at_s, since_s)
        left = unread if at_s > since_s else 0
        ticks = int(worked_s * 90 + at_s * 0.2)
        return OutsideLook(rank(number), at_s, False, "S", ticks, 0, left, waits_in)

    return look


def stopped(number: int, since_s: float) -> Story:
    return lambda at_s: OutsideLook(
        rank(number), at_s, state="T" if at_s >= since_s else "R", cpu_ticks=int(at_s * 90)
    )


def gone(number: int, since_s: float) -> Story:
    return lambda at_s: (
        OutsideLook(rank(number), at_s, is_gone=True) if at_s >= since_s else busy(number)(at_s)
    )


def watch(until_s: float, *stories: Story) -> list[Finding]:
    """The findings at the end of looks every second."""
    histories: dict[int, OutsideHistory] = {}
    at_s = 0.0
    while at_s <= until_s:
        for story in stories:
            look = story(at_s)
            histories[look.who.rank] = follow_outside(histories.get(look.who.rank), look)
        at_s += 1.0
    moment = Moment(until_s, 1000.0 + until_s, "a")
    return list(find_outside_troubles(histories, moment))


def test_a_stopped_process_is_a_hang_to_act_on_once_it_stays_so() -> None:
    assert watch(12.0, busy(0), stopped(1, 10.0)) == []
    (finding,) = watch(20.0, busy(0), stopped(1, 10.0))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [1], True)
    assert finding.since_unix_s == pytest.approx(1010.0)


def test_a_rank_that_was_stopped_while_we_were_too_has_its_time_anew() -> None:
    history = follow_outside(None, stopped(0, 0.0)(10.0))
    history = follow_outside(history, stopped(0, 0.0)(500.0))
    woken = Moment(500.0, 0.0, "a", awake_since_s=500.0)
    beside = {0: history, 1: follow_outside(None, busy(1)(500.0))}
    assert list(find_outside_troubles(beside, woken)) == []
    asleep_for_long = Moment(500.0, 0.0, "a", awake_since_s=0.0)
    assert [f.kind for f in find_outside_troubles(beside, asleep_for_long)] == [Kind.HANG]


def test_ranks_that_are_stopped_together_are_suspended() -> None:
    found = watch(60.0, stopped(0, 10.0), stopped(1, 10.0))
    assert [(f.kind, f.acts) for f in found] == [(Kind.STALL, False)] * 2


def test_a_rank_that_is_gone_while_others_go_on_has_crashed() -> None:
    assert watch(12.0, busy(0), gone(1, 10.0)) == []
    (finding,) = watch(20.0, busy(0), gone(1, 10.0))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.CRASH, [1], False)
    (waited_for,) = watch(20.0, resting(0, 10.0), gone(1, 10.0))
    assert waited_for.confidence > finding.confidence


def test_ranks_that_end_together_have_not_crashed() -> None:
    assert watch(30.0, gone(0, 10.0), gone(1, 13.0)) == []


@pytest.mark.parametrize(
    ("stories", "blamed", "says"),
    [
        ([resting(0), resting(1, unread=70_000), resting(2)], [1], "70000 bytes"),
        ([resting(0), busy(1), resting(2)], [1], "it alone computes"),
        ([busy(0), resting(1), busy(2)], [1], "it alone rests"),
        ([resting(0), busy(1)], [1], "only peer waits"),
        ([resting(0), resting(1, waits_in="pipe_read"), resting(2)], [1], "sleeps in pipe_read"),
        ([resting(0), resting(1)], [0, 1], "can't be seen from outside"),
    ],
)
def test_the_odd_one_among_silent_ranks_is_suspected_but_nothing_is_done_for_it(
    stories: list[Story], blamed: list[int], says: str
) -> None:
    (finding,) = watch(40.0, *stories)
    assert finding.kind is Kind.STALL
    assert finding.ranks == blamed
    assert says in finding.evidence[1]
    assert not finding.acts
    assert finding.confidence <= 0.6
    assert watch(25.0, *stories) == []


def on_gpu(number: int, ratio: float) -> Story:
    def look(at_s: float) -> OutsideLook:
        return dataclasses.replace(busy(number)(at_s), gpu_ratio=ratio)

    return look


def test_the_only_idle_gpu_beside_busy_ones_is_suspected_however_busy_the_cpus_are() -> None:
    (finding,) = watch(40.0, on_gpu(0, 1.0), on_gpu(1, 0.0), on_gpu(2, 0.99))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [1], False)
    assert "GPU has been idle for 40 s" in finding.evidence[0]
    assert watch(25.0, on_gpu(0, 1.0), on_gpu(1, 0.0)) == []
    assert watch(40.0, on_gpu(0, 1.0), on_gpu(1, 0.5)) == []
    assert watch(40.0, on_gpu(0, 1.0), on_gpu(1, 0.0), on_gpu(2, 0.0)) == []
    assert watch(40.0, on_gpu(0, 1.0), busy(1)) == []


def test_two_that_rest_beside_two_that_compute_are_a_pipeline_not_a_stall() -> None:
    assert watch(60.0, busy(0), busy(1), resting(2), resting(3)) == []


def test_a_job_with_pauses_of_up_to_twenty_seconds_is_left_in_peace() -> None:
    chance = random.Random(5)
    pauses = sorted(chance.uniform(0, 3000) for _ in range(40))

    def pausing(number: int) -> Story:
        def look(at_s: float) -> OutsideLook:
            paused_s = sum(min(max(at_s - begin, 0.0), 20.0) for begin in pauses)
            return OutsideLook(rank(number), at_s, False, "S", int((at_s - paused_s) * 90))

        return look

    histories: dict[int, OutsideHistory] = {}
    # Pauses that overlap are longer; those are not what this is about.
    pauses = [b for a, b in zip([-100.0, *pauses], pauses, strict=False) if b - a > 45]
    for second in range(3000):
        for number in range(3):
            look = pausing(number)(float(second))
            histories[number] = follow_outside(histories.get(number), look)
        moment = Moment(float(second), 0.0, "a")
        assert list(find_outside_troubles(histories, moment)) == []
