from __future__ import annotations

import random

from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.frames import MOST_BLOCKS, PATIENCE, FrameAssembler

BOTH = {0, 1}


def test_a_frame_is_closed_when_all_ranks_told_its_steps() -> None:
    frames = FrameAssembler()
    assert frames.take([line(0, 5)], BOTH) == []
    (frame,) = frames.take([line(1, 5)], BOTH)
    assert (frame.after_step, frame.step, set(frame.lines)) == (4, 5, BOTH)


def test_lines_may_come_in_any_order_and_more_than_once() -> None:
    lines = [line(rank, step) for rank in range(4) for step in range(1, 9)] * 2
    random.Random(3).shuffle(lines)
    frames = FrameAssembler()
    closed = [f for one in lines for f in frames.take([one], set(range(4)))]
    assert sorted(frame.step for frame in closed) == list(range(1, 9))
    assert all(set(frame.lines) == set(range(4)) for frame in closed)


def test_steps_are_told_oldest_first_even_when_they_close_at_once() -> None:
    frames = FrameAssembler()
    frames.take([line(0, step) for step in (3, 1, 2)], BOTH)
    closed = frames.take([line(1, step) for step in (2, 3, 1)], BOTH)
    assert [frame.step for frame in closed] == [1, 2, 3]


def test_who_is_late_is_left_out_once_the_others_are_far_enough_ahead() -> None:
    frames = FrameAssembler()
    three = {0, 1, 2}
    closed = []
    for step in range(1, PATIENCE + 2):
        closed += frames.take([line(0, step), line(1, step)], three)
    assert closed[0].step == 1
    assert set(closed[0].lines) == {0, 1}


def test_who_was_waited_for_in_vain_is_not_waited_for_again_until_it_tells_in_time() -> None:
    frames = FrameAssembler()
    three = {0, 1, 2}
    for step in range(1, PATIENCE + 2):
        frames.take([line(0, step), line(1, step)], three)
    (frame,) = frames.take([line(0, 40), line(1, 40)], three)
    assert set(frame.lines) == {0, 1}
    frames.take([line(2, 41), line(0, 41)], three)
    (frame,) = frames.take([line(1, 41)], three)
    assert set(frame.lines) == three
    assert frames.take([line(0, 42), line(1, 42)], three) == []


def test_a_late_line_of_a_closed_frame_changes_nothing() -> None:
    frames = FrameAssembler()
    frames.take([line(0, 7), line(1, 7)], BOTH)
    assert frames.take([line(0, 7), line(1, 6)], BOTH) == []


def test_the_coarser_stride_rules() -> None:
    frames = FrameAssembler()
    fine = [line(0, step, forward=1000 * step) for step in range(1, 5)]
    (frame,) = frames.take([*fine, line(1, 4, stride=4)], BOTH)
    assert (frame.after_step, frame.step) == (0, 4)
    assert frame.lines[0].forward == 2500
    assert frame.lines[0].steps == frame.lines[0].stride == 4


def test_frames_become_short_again_when_all_tell_of_short_blocks() -> None:
    frames = FrameAssembler()
    frames.take([line(0, 4, stride=4), line(1, 4, stride=4)], BOTH)
    steps = []
    for step in range(5, 13):
        steps += frames.take([line(0, step), line(1, step)], BOTH)
    assert steps[0].step == 8
    assert [frame.step for frame in steps[1:]] == [9, 10, 11, 12]


def test_a_longer_stride_in_the_middle_of_a_block_waits_for_no_step_that_was_told_before() -> None:
    frames = FrameAssembler()
    for step in range(1, 6):
        frames.take([line(0, step), line(1, step)], BOTH)
    (frame,) = frames.take([line(0, 8, stride=4), *(line(1, s) for s in (6, 7, 8))], BOTH)
    assert set(frame.lines) == BOTH


def test_ranks_without_an_ordinary_step_are_left_out() -> None:
    (frame,) = FrameAssembler().take([line(0, 5, steps=0), line(1, 5)], BOTH)
    assert set(frame.lines) == {1}


def test_torn_lines_and_those_of_strangers_are_dropped() -> None:
    frames = FrameAssembler()
    torn = [line(0, 5, stride=3), line(0, 5, stride=0), line(0, 5, stride=4), line(9, 5)]
    (frame,) = frames.take([*torn, line(0, 5), line(1, 5)], BOTH)
    assert frame.step == 5
    assert frame.after_step == 4


def test_torn_steps_far_ahead_neither_stop_the_frames_nor_fill_the_memory() -> None:
    frames = FrameAssembler()
    closed = []
    for step in range(1, 400):
        right = [line(rank, step) for rank in range(4)]
        closed += frames.take([line(0, 10**9 + step), *right], set(range(4)))
        assert len(frames._blocks) <= MOST_BLOCKS + 1
    assert [frame.step for frame in closed] == list(range(1, 400))


def test_a_rank_that_left_is_not_waited_for() -> None:
    frames = FrameAssembler()
    frames.take([line(0, 1), line(1, 1)], BOTH)
    (frame,) = frames.take([line(0, 2)], {0})
    assert set(frame.lines) == {0}


def test_one_torn_line_of_a_million_steps_makes_nobody_wait() -> None:
    frames = FrameAssembler()
    steps = []
    for step in range(1, 40):
        torn = [line(1, 1 << 20, stride=1 << 20)] * 2 if step == 20 else []
        steps += [f.step for f in frames.take([*torn, line(0, step), line(1, step)], BOTH)]
    assert steps == list(range(1, 40))


def test_far_longer_blocks_count_once_two_lines_have_them_and_nothing_is_lost() -> None:
    frames = FrameAssembler()
    frames.take([line(0, 32), line(1, 32)], BOTH)
    assert frames.take([line(0, 64, stride=32)], BOTH) == []
    (frame,) = frames.take([line(1, 64, stride=32)], BOTH)
    assert (frame.after_step, frame.step, set(frame.lines)) == (32, 64, BOTH)
