"""From records to lines: which steps count, where blocks end, what is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.unit.ranks.scene import identity, look, record

from holdfast.contract.page import Record, RecordFlag, Word
from holdfast_sidecar.performance.stragglers.load import Counts, NodeLoad
from holdfast_sidecar.performance.stragglers.windows import NodeWindows
from holdfast_sidecar.records.steps import StepLine, parse


def steps(first: int, last: int, **milliseconds: float) -> tuple[Record, ...]:
    return tuple(record(step, **milliseconds) for step in range(first, last + 1))


def take(
    windows: NodeWindows, *records: Sequence[Record], attempt: int = 0, world_size: int = 2
) -> list[StepLine]:
    """One look at ranks 0, 1, ... with these new records."""
    looks = [
        replace(
            look(1.0, rank=rank, records=tuple(new)),
            identity=identity(rank, world_size, attempt),
        )
        for rank, new in enumerate(records)
    ]
    return windows.follow(looks, {}, {})


def ends(lines: Iterable[StepLine]) -> list[tuple[int, int, int]]:
    return [(line.step, line.stride, line.steps) for line in lines]


def test_steps_that_last_long_enough_have_a_line_each() -> None:
    windows = NodeWindows()
    lines = take(windows, steps(1, 10, forward=120, communicating=30))
    assert ends(lines) == [(step, 1, 1) for step in range(4, 11)]
    assert (lines[0].total, lines[0].forward, lines[0].communicating) == (150000, 120000, 30000)
    assert ends(take(windows, steps(11, 11, forward=120))) == [(11, 1, 1)]


def test_short_ones_are_put_into_blocks_that_end_alike_whoever_was_seen_when() -> None:
    windows = NodeWindows()
    lines = take(windows, steps(1, 30, forward=20), steps(6, 26, forward=20))
    assert windows.stride == 8
    assert ends(line for line in lines if line.rank == 0) == [(8, 8, 5), (16, 8, 8), (24, 8, 8)]
    assert ends(line for line in lines if line.rank == 1) == [(16, 8, 8), (24, 8, 8)]


def test_a_thousand_ranks_have_longer_blocks() -> None:
    windows = NodeWindows()
    take(windows, steps(1, 30, forward=120), world_size=4096)
    assert windows.stride == 16


def test_means_are_over_the_steps_in_which_nothing_rare_was_done() -> None:
    windows = NodeWindows()
    rare = [
        record(9, forward=20, saving=50),
        replace(record(10, forward=20), evaluating_us=90000, total_us=110000),
        replace(record(11, forward=20), compiling_us=30000, total_us=50000),
        replace(record(12, other=90), flags=RecordFlag.WHOLE_ONLY),
    ]
    (_, line) = take(windows, [*steps(1, 8, forward=20), *rare, *steps(13, 16, forward=24)])
    assert (line.steps, line.forward, line.other, line.total) == (4, 24000, 0, 24000)
    assert (line.lost, line.compiled) == ((50000 + 90000 + 30000) // 8, 1)
    assert line.evaluated == 90000 // 8


def test_a_step_that_was_traced_makes_nobody_slow() -> None:
    windows = NodeWindows()
    traced = [replace(record(12, forward=90), flags=RecordFlag.TRACED)]
    (_, line) = take(windows, [*steps(1, 11, forward=20), *traced, *steps(13, 16, forward=20)])
    assert (line.steps, line.forward, line.lost) == (7, 20000, 0)


def test_a_small_snapshot_in_each_step_leaves_them_ordinary() -> None:
    windows = NodeWindows()
    (*_, line) = take(windows, steps(1, 16, forward=20, saving=1))
    assert (line.steps, line.total, line.lost) == (8, 20000, 1000)


def test_a_block_without_an_ordinary_step_says_so() -> None:
    windows = NodeWindows()
    (*_, line) = take(windows, [*steps(1, 8, forward=20), *steps(9, 16, forward=20, saving=90)])
    assert (line.step, line.steps, line.total, line.lost) == (16, 0, 0, 90000)


def test_missing_records_make_fewer_steps_and_missing_blocks_no_line() -> None:
    windows = NodeWindows()
    lines = take(
        windows,
        [*steps(1, 10, forward=20), *steps(13, 14, forward=20), *steps(34, 40, forward=20)],
    )
    assert ends(lines) == [(8, 8, 5), (16, 8, 4), (40, 8, 7)]


def test_waits_were_seen_and_work_reported_only_where_all_steps_say_so() -> None:
    seen = RecordFlag.WAITS_SEEN | RecordFlag.WORK_REPORTED
    all_say = [
        replace(one, flags=seen, tokens=100 + one.step, squares=7.0, waits_us=(1, 2, 3, 4))
        for one in steps(1, 16, forward=20)
    ]
    but_one = [*all_say[:-1], replace(all_say[-1], flags=RecordFlag.LOSS)]
    (*_, mine) = take(NodeWindows(), all_say)
    assert (mine.waits_seen, mine.work_reported) == (1, 1)
    assert (mine.tokens, mine.squares, mine.waits) == (112, 7, (1, 2, 3, 4))
    (*_, other) = take(NodeWindows(), but_one)
    assert (other.waits_seen, other.work_reported) == (0, 0)


def test_work_that_is_no_number_is_not_known() -> None:
    odd = [replace(one, squares=float("inf")) for one in steps(1, 16, forward=20)]
    (*_, line) = take(NodeWindows(), odd)
    assert line.squares == 0


def test_where_a_device_was_timed_its_clock_divides_the_step() -> None:
    host = steps(1, 15, other=20)
    timed = replace(
        record(16, other=20),
        device_us=(1000, 4000, 8000, 6000, 1000, 0),
        device_lag=3,
        waits_us=(7, 0, 0, 0),
    )
    (_, line) = take(NodeWindows(), [*host, timed])
    assert (line.total, line.transfer, line.forward, line.backward) == (20000, 1000, 4000, 8000)
    assert (line.communicating, line.optimizer, line.other, line.waits_seen) == (6000, 1000, 0, 1)
    assert line.own_us == 14000
    (_, line) = take(NodeWindows(), [*host, replace(timed, device_lag=0)])
    assert (line.other, line.waits_seen) == (20000, 0)


def on_gpu(first: int, last: int, every: int = 8, at: int = 6) -> list[Record]:
    """Of each so manyth step, three quarters are forward by the device's clock."""
    device_us = (0, 90000, 0, 30000, 0, 0)
    return [
        replace(one, device_us=device_us, device_lag=1) if (one.step - 1 - at) % every == 0 else one
        for one in steps(first, last, other=120)
    ]


def test_blocks_are_as_long_as_from_one_step_that_a_device_timed_to_the_next() -> None:
    windows = NodeWindows()
    lines = take(windows, on_gpu(1, 12))
    assert windows.stride == 1
    assert {line.steps for line in lines if line.step != 7} == {0}
    lines = take(windows, on_gpu(13, 48))
    assert windows.stride == 8
    assert ends(line for line in lines if line.steps)[-3:] == [(32, 8, 8), (40, 8, 8), (48, 8, 8)]
    assert {line.forward for line in lines if line.stride == 8} == {90000}
    rarer = take(windows, on_gpu(49, 200, every=32))
    assert windows.stride == 32
    assert {line.forward for line in rarer if line.stride == 32} == {90000}


def test_a_block_in_which_no_step_was_timed_by_the_device_tells_of_none() -> None:
    windows = NodeWindows()
    take(windows, on_gpu(1, 64))
    lines = take(windows, [*steps(65, 72, other=120), *on_gpu(73, 80)])
    assert ends(lines) == [(72, 8, 0), (80, 8, 8)]
    assert lines[0].own_us == 0


def test_a_rank_that_trains_on_a_gpu_is_waited_for_until_its_clock_is_known() -> None:
    def words(records: Sequence[Record]) -> list[StepLine]:
        told = list(look(1.0).words)
        told[Word.MEMORY_TOTAL] = 80 << 30
        seen = replace(look(1.0, records=tuple(records)), words=tuple(told))
        return windows.follow([seen], {}, {})

    windows = NodeWindows()
    assert words(steps(1, 10, other=120)) == []
    assert words(on_gpu(11, 16, at=12))[0].step == 4
    windows = NodeWindows()
    assert len(words(steps(1, 12, other=120))) == 9


def test_the_stride_waits_for_the_first_steps_and_their_lines_are_not_lost() -> None:
    windows = NodeWindows()
    assert take(windows, steps(1, 3, forward=900)) == []
    assert take(windows, steps(4, 7, forward=120)) == []
    assert ends(take(windows, steps(8, 8, forward=120))) == [(step, 1, 1) for step in range(4, 9)]
    slow = NodeWindows()
    assert ends(take(slow, steps(1, 4, forward=60_000))) == [(4, 1, 1)]


def test_a_pace_that_changes_for_good_changes_the_stride_where_blocks_of_both_begin() -> None:
    windows = NodeWindows()
    take(windows, steps(1, 20, forward=120))
    assert windows.stride == 1
    lines = take(windows, steps(21, 60, forward=20))
    assert windows.stride == 8
    assert ends(lines)[:5] == [(21, 1, 1), (22, 1, 1), (23, 1, 1), (24, 1, 1), (32, 8, 8)]
    lines = take(windows, steps(61, 90, forward=120))
    assert windows.stride == 1
    assert ends(lines)[:3] == [(64, 8, 8), (65, 1, 1), (66, 1, 1)]


def test_an_attempt_begins_from_nothing() -> None:
    windows = NodeWindows()
    take(windows, steps(1, 20, forward=120))
    assert take(windows, steps(15, 17, forward=20), attempt=1) == []
    assert ends(take(windows, steps(18, 40, forward=20), attempt=1)) == [
        (24, 8, 7),
        (32, 8, 8),
        (40, 8, 8),
    ]


def test_one_rank_that_is_there_anew_does_not_disturb_the_others() -> None:
    windows = NodeWindows()
    take(windows, steps(1, 20, forward=20), steps(1, 20, forward=20))
    again = replace(look(1.0, rank=1, records=steps(1, 8, forward=20)))
    again = replace(again, identity=replace(identity(1), pid=4))
    there = look(1.0, rank=0, records=steps(21, 24, forward=20))
    assert [(line.rank, *ends([line])[0]) for line in windows.follow([there, again], {}, {})] == [
        (0, 24, 8, 8),
        (1, 8, 8, 5),
    ]


def test_steps_that_are_counted_anew_don_t_join_a_block_of_others() -> None:
    windows = NodeWindows()
    take(windows, steps(1, 18, forward=20))
    assert ends(take(windows, steps(1, 8, forward=40))) == [(8, 8, 8)]


def test_a_line_carries_what_kept_its_process_and_its_surroundings() -> None:
    windows = NodeWindows()
    first = look(1.0, records=steps(1, 9, forward=120))
    windows.follow([first], {0: Counts(1.0, 5.0)}, {})
    second = look(2.0, records=steps(10, 10, forward=120))
    around = {0: NodeLoad(storage=0.25, clock=0.9)}
    (line,) = windows.follow([second], {0: Counts(2.0, 5.5, 0.0, 0.0, 3)}, around)
    assert (line.cpu_permille, line.storage_permille, line.clock_permille) == (500, 250, 900)


def test_the_newest_eight_lines_of_a_rank_are_told_and_of_old_ones_two() -> None:
    windows = NodeWindows()
    lines = take(windows, steps(1, 20, forward=120), steps(1, 20, forward=120))
    newest_s = 20 * 0.5
    told = [parse(text) for text in windows.tell(newest_s)]
    assert told == [line for line in lines if line.step > 12]
    assert [line.step for text in windows.tell(newest_s + 2.0) if (line := parse(text))] == [
        *(16, 17, 18, 19, 20),
        *(16, 17, 18, 19, 20),
    ]
    assert len(windows.tell(newest_s + 60.0)) == 4
