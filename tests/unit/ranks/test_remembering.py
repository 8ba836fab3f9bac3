"""What the loop remembers from tick to tick: ranks, heartbeats."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from tests.unit.ranks.scene import history, look, moment, steps

from holdfast.contract.page import Flag, Record, RecordFlag, Word, float_bits
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.fence import KEPT_S, HeartbeatTimes
from holdfast_sidecar.ranks.observation import RECORDS_KEPT, RankTracker
from holdfast_sidecar.ranks.probe import report_rank
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Lease, Section, View


def view(**beats: int) -> View:
    reports = {n: encode(NodeReport(n, "x", beat, 0, 0, 0, True)) for n, beat in beats.items()}
    return View(Lease(1, "a/x"), "server", {Section.NODES: reports})


def test_a_heartbeat_counts_when_it_moves() -> None:
    times = HeartbeatTimes()
    assert times.seen(view(a=1, b=1), 10.0) == {"a": 10.0, "b": 10.0}
    assert times.seen(view(a=2, b=1), 11.0) == {"a": 11.0, "b": 10.0}
    assert times.seen(None, 12.0) == {"a": 11.0, "b": 10.0}


def test_a_node_that_left_the_store_is_told_for_another_hour() -> None:
    """Redis came back empty while it was lost: nobody else knows of it then."""
    times = HeartbeatTimes()
    times.seen(view(a=1, b=1), 10.0)
    assert times.seen(view(a=3), 13.0) == {"a": 13.0, "b": 10.0}
    assert times.seen(view(a=4, b=9), 14.0) == {"a": 14.0, "b": 14.0}
    assert times.seen(view(a=5), 14.0 + KEPT_S) == {"a": 14.0 + KEPT_S}


def test_a_new_attempt_begins_with_an_empty_memory() -> None:
    attention = RankTracker()
    attention.take_in([look(1.0, records=steps(10, forward=5))], 1.0)
    later = look(2.0)
    renewed = dataclasses.replace(
        later, identity=dataclasses.replace(later.identity, attempt=1, claimed_ns=9)
    )
    attention.take_in([renewed], 2.0)
    assert attention.attempt == 1
    assert attention.histories[0].records == ()


@pytest.mark.parametrize(
    ("loss", "reported"),
    [
        (math.nan, (None, False)),
        (math.inf, (None, False)),
        (0.5, (0.5, True)),
        (None, (None, True)),
    ],
)
def test_a_loss_that_is_no_number_is_reported_in_plain_json(
    loss: float | None, reported: tuple[float | None, bool]
) -> None:
    report = report_rank(history(look(1.0, loss=loss)), Settings(), moment(1.0))
    assert (report.loss, report.is_loss_finite) == reported
    told = json.loads(encode(report), parse_constant=lambda name: pytest.fail(name))
    assert told["loss"] == report.loss


@pytest.mark.parametrize(("flags", "in_loop"), [(0, False), (Flag.LOOP_WRAPPED, True)])
def test_a_rank_is_in_its_loop_once_it_wrapped_one(flags: int, in_loop: bool) -> None:
    seen = look(1.0)
    words = list(seen.words)
    words[Word.FLAGS] = flags
    seen = dataclasses.replace(seen, words=tuple(words))
    assert report_rank(history(seen), Settings(), moment(1.0)).in_loop is in_loop


@pytest.mark.parametrize(
    ("flags", "is_alone"),
    [
        (0, False),
        (Flag.GROUP_INITIALISED, True),
        (Flag.GROUP_INITIALISED | Flag.OTHER_BACKEND, False),
    ],
)
def test_a_rank_uses_gloo_alone_when_it_has_groups_and_none_uses_another(
    flags: int, is_alone: bool
) -> None:
    seen = look(1.0)
    words = list(seen.words)
    words[Word.FLAGS] = flags
    seen = dataclasses.replace(seen, words=tuple(words))
    report = report_rank(history(seen), Settings(), moment(1.0))
    assert report.is_gloo_alone is is_alone


def test_what_a_rank_computes_and_holds_is_reported_from_its_page() -> None:
    words = {
        Word.MODEL_FLOPS: float_bits(6e12),
        Word.HARDWARE_FLOPS: float_bits(8e12),
        Word.PEAK_FLOPS: float_bits(math.nan),
        Word.MEMORY_ALLOCATED: 5,
        Word.MEMORY_RESERVED: 6,
        Word.MEMORY_PEAK: 7,
        Word.MEMORY_TOTAL: 8,
        Word.MEMORY_RETRIES: 1,
    }
    seen = look(1.0)
    held = list(seen.words)
    for word, value in words.items():
        held[word] = value
    seen = dataclasses.replace(seen, words=tuple(held))
    report = report_rank(history(seen), Settings(), moment(1.0))
    assert (report.model_flops, report.hardware_flops, report.peak_flops) == (6e12, 8e12, 0.0)
    assert (report.memory_allocated, report.memory_reserved, report.memory_peak) == (5, 6, 7)
    assert (report.memory_total, report.memory_retries) == (8, 1)
    json.loads(encode(report), parse_constant=lambda name: pytest.fail(name))


def test_histories_stay_bounded() -> None:
    attention = RankTracker()
    for now in range(5):
        attention.take_in([look(float(now), records=steps(50, forward=5))], float(now))
    history = attention.histories[0]
    assert len(history.records) == RECORDS_KEPT
    assert round(history.phase_totals["forward"], 3) == 5 * 50 * 0.005


def test_steps_of_which_only_the_whole_is_known_are_no_other_work() -> None:
    attention = RankTracker()
    whole: dict[str, Any] = {"total_us": 9000, "other_us": 7000, "saving_us": 2000}
    whole["flags"] = RecordFlag.WHOLE_ONLY
    records = (
        *steps(2, forward=5, other=1),
        *(dataclasses.replace(one, **whole) for one in steps(3, forward=0)),
    )
    for now in range(2):
        attention.take_in([look(float(now), records=records)], float(now))
    totals = attention.histories[0].phase_totals
    known = {phase: round(total, 3) for phase, total in totals.items() if total}
    assert known == {"forward": 0.02, "other": 0.004, "saving": 0.012, "unsplit": 0.042}


def test_what_the_collector_took_adds_up() -> None:
    attention = RankTracker()
    paused = tuple(dataclasses.replace(one, collector_us=4000) for one in steps(10, forward=5))
    for now in range(3):
        attention.take_in([look(float(now), records=paused)], float(now))
    assert round(attention.histories[0].collector_s, 3) == 3 * 10 * 0.004


def test_an_old_look_is_remembered_and_nobody_is_judged_by_it() -> None:
    attention = RankTracker()
    attention.take_in([look(1.0, rank=0), look(2.0, rank=1)], 2.0)
    assert sorted(attention.histories) == [0, 1]
    assert sorted(attention.seen_at(2.0)) == [1]


def test_only_ranks_that_are_gone_are_dead() -> None:
    attention = RankTracker()
    attention.take_in([look(1.0, rank=0), look(1.0, rank=1, is_gone=True)], 1.0)
    assert [process.pid for process in attention.dead_ranks()] == [1001]


def losses(*values: float, first: int) -> tuple[Record, ...]:
    return tuple(
        Record(step, step, 1, 0, 0, 0, 0, 0, 0, 0, value, RecordFlag.LOSS)
        for step, value in enumerate(values, first)
    )


def test_the_onset_of_bad_numbers_is_the_first_step_of_those_without_a_break() -> None:
    well = look(1.0, step=4, loss=1.0, records=losses(1.0, math.nan, 1.0, 1.0, first=1))
    assert history(well).onset_step == -1
    ill = look(2.0, step=8, loss=math.nan, records=losses(1.0, math.inf, math.nan, first=5))
    assert history(well, ill).onset_step == 6
    later = look(3.0, step=9, loss=math.nan, records=losses(math.nan, first=8))
    assert history(well, ill, later).onset_step == 6
    again_well = look(4.0, step=10, loss=2.0, records=losses(2.0, first=9))
    assert history(well, ill, later, again_well).onset_step == -1


def test_an_onset_whose_record_was_lapped_is_where_the_loss_was_last_told() -> None:
    assert history(look(1.0, step=8, loss=math.nan)).onset_step == 8


def test_the_step_of_which_a_part_was_over_before_anybody_looked_says_nothing_of_the_pace() -> None:
    """A script without lines of ours: its first forward pass is not seen, and a rank whose work
    lies there had a first step of 4 ms beside 280. A trace was ordered 210 steps ahead."""
    begun_late, *whole = steps(3, forward=280)
    begun_late = dataclasses.replace(begun_late, total_us=3723, forward_us=3723)

    def told(*records: Record) -> tuple[float, float]:
        report = report_rank(history(look(1.0, records=records)), Settings(), moment(1.0))
        return report.step_s, report.own_s

    assert told(begun_late) == (0.0, 0.0)
    assert told(begun_late, *whole) == (0.28, 0.28)
    long_ago = steps(RECORDS_KEPT + 2, forward=280)
    assert len(history(look(1.0, records=long_ago)).whole_steps) == RECORDS_KEPT
