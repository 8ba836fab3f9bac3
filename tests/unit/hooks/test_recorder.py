"""What the recorder writes, read back the way the sidecar reads it."""

from __future__ import annotations

import math

import pytest

from holdfast.contract import page
from holdfast.contract.page import (
    Ending,
    Flag,
    Order,
    OrderKind,
    Phase,
    RecordFlag,
    Reply,
    ReplyState,
    Word,
)
from holdfast.recording.recorder import Recorder
from holdfast.recording.sampling import STRETCH, sampled_every

US = 1000


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 10_000 * US

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, us: int) -> None:
        self.now_ns += us * US


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory() -> bytearray:
    return bytearray(page.PAGE_SIZE)


@pytest.fixture
def recorder(memory: bytearray, clock: Clock) -> Recorder:
    return Recorder(memory, attempt=3, clock=clock)


def records(memory: bytearray) -> list[page.Record]:
    return [record for _, record in page.parse_records(bytes(memory), 0)]


def write_order(memory: bytearray, order: Order, sequence: int) -> None:
    body, word = page.pack_order(order, sequence)
    start = page.order_offset(order.kind)
    memory[start + 8 : start + 8 + len(body)] = body
    memory[start : start + 8] = word


def order_for(attempt: int, step: int = 7, identifier: str = "a") -> Order:
    return Order(OrderKind.CHECKPOINT, attempt, 1, step, 99, identifier)


def test_time_belongs_to_the_innermost_phase_and_is_counted_once(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    recorder.enter(Phase.DATA)
    clock.spend(10)
    recorder.enter(Phase.FORWARD)
    clock.spend(20)
    outer = recorder.enter(Phase.BACKWARD)
    clock.spend(30)
    inner = recorder.enter(Phase.COMMUNICATING)
    clock.spend(40)
    recorder.enter(inner)
    clock.spend(5)
    recorder.enter(outer)
    recorder.enter(Phase.OPTIMIZER)
    clock.spend(50)
    recorder.enter(Phase.EVALUATING)
    clock.spend(60)
    recorder.end_step(1)
    (record,) = records(memory)
    assert (inner, outer) == (Phase.BACKWARD, Phase.FORWARD)
    assert (record.data_us, record.forward_us, record.backward_us) == (10, 20, 35)
    assert (record.communicating_us, record.optimizer_us, record.saving_us) == (40, 50, 0)
    assert (record.evaluating_us, record.other_us, record.total_us) == (60, 0, 215)
    assert record.end_ns == clock.now_ns


def test_starting_and_restoring_are_no_part_of_the_first_step(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    clock.spend(5_000_000)
    recorder.enter(Phase.RESTORING)
    clock.spend(1_000_000)
    recorder.enter(Phase.FORWARD)
    clock.spend(30)
    recorder.end_step(1)
    (record,) = records(memory)
    assert (record.total_us, record.other_us) == (30, 0)


def test_a_phase_is_seen_with_its_start_and_every_change_is_progress(
    recorder: Recorder, clock: Clock
) -> None:
    before = recorder.word(Word.PROGRESS)
    clock.spend(3)
    recorder.enter(Phase.DATA)
    assert recorder.word(Word.PHASE) == Phase.DATA
    assert recorder.word(Word.PHASE_SINCE_NS) == clock.now_ns
    assert recorder.word(Word.PROGRESS) == before + 1


def test_a_step_may_end_and_a_phase_begin_in_one_moment(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    recorder.enter(Phase.OPTIMIZER)
    clock.spend(10)
    recorder.end_step(1, Phase.DATA)
    clock.spend(5)
    recorder.end_step(2)
    first, second = records(memory)
    assert (first.optimizer_us, first.total_us) == (10, 10)
    assert (second.data_us, second.total_us) == (5, 5)
    assert recorder.word(Word.PHASE) == recorder.phase == Phase.DATA
    assert recorder.word(Word.PHASE_SINCE_NS) == first.end_ns
    assert recorder.word(Word.PROGRESS) == 2


def run_steps(recorder: Recorder, clock: Clock, count: int, us: int) -> None:
    for _ in range(count):
        recorder.enter(Phase.FORWARD)
        clock.spend(us // 2)
        recorder.enter(Phase.BACKWARD)
        recorder.wait_in(0, 7 * US)
        recorder.add_overlapped(7 * US)
        clock.spend(us // 2)
        recorder.end_step(recorder.word(Word.STEP) + 1)


def test_of_steps_too_short_to_measure_each_only_some_are_and_the_others_say_so(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    recorder.sees_waits = True
    run_steps(recorder, clock, 4 * STRETCH, us=500)
    assert recorder.word(Word.ANATOMY_EVERY) == 4
    newest = records(memory)[-STRETCH:]
    measured = [record for record in newest if not record.flags & RecordFlag.WHOLE_ONLY]
    whole = [record for record in newest if record.flags & RecordFlag.WHOLE_ONLY]
    assert {record.step % 4 for record in measured} == {0}
    assert len(measured) == STRETCH // 4
    assert {(r.forward_us, r.backward_us, r.other_us, r.waits_us[0]) for r in measured} == {
        (250, 250, 0, 7)
    }
    assert all(record.flags & RecordFlag.WAITS_SEEN for record in measured)
    assert {(r.total_us, r.other_us, r.waits_us[0], r.overlapped_us) for r in whole} == {
        (500, 500, 0, 0)
    }
    assert not any(record.flags & RecordFlag.WAITS_SEEN for record in whole)


def test_when_steps_grow_longer_each_is_measured_again(recorder: Recorder, clock: Clock) -> None:
    run_steps(recorder, clock, 4 * STRETCH, us=20)
    assert recorder.word(Word.ANATOMY_EVERY) == 64
    run_steps(recorder, clock, 2 * STRETCH, us=50_000)
    assert recorder.word(Word.ANATOMY_EVERY) == 1
    assert recorder.is_measured


def test_a_step_that_is_not_measured_hides_neither_its_phase_nor_what_is_rare(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    run_steps(recorder, clock, 4 * STRETCH, us=200)
    assert not recorder.is_measured
    progress = recorder.word(Word.PROGRESS)
    clock.spend(30)
    recorder.enter(Phase.OPTIMIZER)
    assert recorder.word(Word.PHASE) == Phase.OPTIMIZER
    assert recorder.word(Word.PROGRESS) == progress + 1
    for phase, us in ((Phase.RESTORING, 9000), (Phase.COMPILING, 400), (Phase.SAVING, 500)):
        before = recorder.enter(phase)
        clock.spend(us)
        recorder.enter(before)
        clock.spend(10)
    recorder.enter(Phase.EVALUATING)
    clock.spend(600)
    recorder.end_step(recorder.word(Word.STEP) + 1)
    record = records(memory)[-1]
    assert record.flags & RecordFlag.WHOLE_ONLY
    assert (record.compiling_us, record.saving_us, record.evaluating_us) == (400, 500, 600)
    assert (record.other_us, record.total_us) == (60, 1560)


@pytest.mark.parametrize(
    ("mean_us", "every", "then"),
    [
        (2000, 1, 1),
        (1999, 1, 2),
        (500, 1, 4),
        (500, 4, 4),
        (1900, 4, 4),  # where either will do it stays: a mean that wavers changes nothing
        (2000, 4, 2),
        (100_000, 64, 1),
        (1, 1, 64),
        (0, 64, 64),
    ],
)
def test_how_many_steps_are_measured_follows_how_long_they_are(
    mean_us: int, every: int, then: int
) -> None:
    assert sampled_every(mean_us, every) == then


def test_what_a_rank_waits_for_others_while_it_starts_is_no_part_of_the_first_step(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    for starting in (Phase.STARTING, Phase.RESTORING):
        recorder.enter(starting)
        previous = recorder.enter(Phase.COMMUNICATING)
        clock.spend(60_000_000)
        recorder.add_collected(7_000)
        recorder.enter(previous)
        recorder.wait_in(0, 60_000_000_000)
    recorder.add_backward()  # the pass is counted, and its loss read, before it is entered
    recorder.note_loss(0.5)
    for step in (1, 2):
        recorder.enter(Phase.DATA)
        clock.spend(10)
        before = recorder.enter(Phase.RESTORING)
        clock.spend(3)
        recorder.enter(before)
        recorder.enter(Phase.COMMUNICATING)
        clock.spend(20)
        recorder.enter(Phase.FORWARD)
        recorder.wait_in(0, 20_000)
        recorder.end_step(step)
    told = [(one.total_us, one.waits_us[0], one.collector_us) for one in records(memory)]
    assert told == [(20, 20, 0), (30, 20, 0)]
    assert [(one.backwards, one.loss, one.flags) for one in records(memory)] == [
        (1, 0.5, RecordFlag.LOSS),
        (0, 0.5, 0),
    ]
    assert recorder.on_phase is None


def test_a_step_ends_in_the_middle_of_a_phase_without_restarting_it(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    recorder.enter(Phase.FORWARD)
    since = clock.now_ns
    clock.spend(10)
    recorder.end_step(1)
    clock.spend(7)
    recorder.end_step(2)
    assert recorder.word(Word.PHASE_SINCE_NS) == since
    assert [record.forward_us for record in records(memory)] == [10, 7]


def test_the_ring_keeps_the_newest_records(recorder: Recorder, memory: bytearray) -> None:
    count = page.RING_CAPACITY + 10
    for step in range(1, count + 1):
        recorder.end_step(step)
    assert recorder.word(Word.PUBLISHED) == recorder.word(Word.STEP) == count
    assert [record.step for record in records(memory)] == list(range(11, count + 1))


def test_a_step_longer_than_the_record_can_say_is_cut_and_not_refused(
    recorder: Recorder, memory: bytearray, clock: Clock
) -> None:
    recorder.enter(Phase.IDLE)
    clock.spend(2**32 + 5)
    recorder.end_step(1)
    (record,) = records(memory)
    assert record.total_us == record.other_us == 2**32 - 1


def test_a_loss_is_in_the_record_of_its_step_only(recorder: Recorder, memory: bytearray) -> None:
    recorder.report_loss(0.5)
    recorder.end_step(1)
    recorder.end_step(2)
    first, second = records(memory)
    assert (first.loss, first.flags) == (0.5, RecordFlag.LOSS)
    assert second.flags == 0
    assert page.bits_float(recorder.word(Word.LOSS_BITS)) == 0.5
    assert recorder.word(Word.LOSS_STEP) == 1


def test_what_is_counted_beside_the_phases_is_in_the_record_of_its_step_only(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.sees_waits = True
    recorder.enter(Phase.FORWARD)
    recorder.wait_in(0, 5 * US)
    recorder.wait_in(3, 7 * US)
    recorder.wait_in(0, 6 * US)
    recorder.wait_in(4, 99 * US)  # a group that is not timed
    recorder.wait_in(-1, 99 * US)
    recorder.add_overlapped(8 * US)
    recorder.add_collected(9 * US)
    recorder.note_device((1, 2, 3, -4, 5, 2**40), lag=2)
    recorder.note_work(100, 3.0)
    recorder.note_work(20, 1.5)
    recorder.add_backward()
    recorder.add_backward()
    recorder.end_step(1)
    recorder.end_step(2)
    first, second = records(memory)
    assert (first.waits_us, first.overlapped_us, first.collector_us) == ((11, 0, 0, 7), 8, 9)
    assert (first.device_us, first.device_lag) == ((1, 2, 3, 0, 5, 2**32 - 1), 2)
    assert (first.tokens, first.squares, first.backwards) == (120, 4.5, 2)
    assert first.flags == second.flags == RecordFlag.WAITS_SEEN
    assert (second.waits_us, second.overlapped_us, second.collector_us) == ((0,) * 4, 0, 0)
    assert (second.device_us, second.device_lag) == ((0,) * 6, 0)
    assert (second.tokens, second.squares, second.backwards) == (0, 0.0, 0)


def test_whoever_keeps_a_devices_clock_hears_of_phases_and_of_steps_before_their_record(
    recorder: Recorder, memory: bytearray
) -> None:
    heard: list[object] = []
    recorder.on_phase = heard.append

    def read(step: int) -> None:
        heard.append(step)
        recorder.note_device((1, 2, 3, 4, 5, 6), lag=1)

    recorder.on_step = read
    recorder.enter(Phase.BACKWARD)
    recorder.end_step(7)
    assert heard == [Phase.BACKWARD, 7]
    assert records(memory)[0].device_us == (1, 2, 3, 4, 5, 6)


def test_a_backward_pass_whose_waits_were_not_seen_is_not_said_to_be_own_work(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.sees_waits = True
    recorder.backwards_unseen = 1
    recorder.end_step(1)
    recorder.end_step(2)
    assert [record.flags for record in records(memory)] == [0, RecordFlag.WAITS_SEEN]


def test_reported_work_replaces_what_its_batches_looked_like(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.note_work(100, 3.0)
    recorder.report_work(64, 9.0)
    recorder.report_work(16, 1.0)
    recorder.note_work(100, 3.0)
    recorder.end_step(1)
    recorder.report_work(7, 2.0, step=1)  # from a GPU, a step late
    recorder.end_step(2)
    first, second = records(memory)
    assert (first.tokens, first.squares, first.flags) == (80, 10.0, RecordFlag.WORK_REPORTED)
    assert (second.tokens, second.flags) == (0, 0)
    assert recorder.word(Word.TOKENS) == 87


def test_more_work_than_a_record_can_say_is_cut_and_not_refused(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.note_work(2**39, 1e300)
    recorder.end_step(1)
    recorder.report_work(2**39, math.nan)
    recorder.end_step(2)
    first, second = records(memory)
    assert first.tokens == 2**32 - 1
    assert first.squares == pytest.approx(page.LARGEST_NORM)
    assert (second.tokens, second.squares) == (2**32 - 1, 0.0)


def test_tokens_add_up_and_what_is_no_number_of_them_counts_as_none(recorder: Recorder) -> None:
    for count in (4096, 4096.0, 0, math.nan, math.inf, -5, 1e300, 2**64):
        recorder.report_work(count)
    assert recorder.word(Word.TOKENS) == 8192


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_counted(recorder: Recorder, value: float) -> None:
    recorder.report_loss(1.0)
    assert recorder.word(Word.NONFINITE) == 0
    recorder.report_loss(value, step=12)
    assert recorder.word(Word.NONFINITE) == 1
    assert recorder.word(Word.LOSS_STEP) == 12


def test_a_gradient_norm_is_in_the_record_of_its_step_only(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.note_gradient(2.5)
    recorder.end_step(1)
    recorder.end_step(2)
    first, second = records(memory)
    assert (first.gradient_norm, first.flags) == (2.5, RecordFlag.GRADIENT)
    assert second.flags == 0
    assert page.bits_float(recorder.word(Word.GRADIENT_BITS)) == 2.5
    assert recorder.word(Word.GRADIENT_STEP) == 1


@pytest.mark.parametrize(
    ("norms", "kept"),
    [
        ((1.0, 3.0, 2.0), 3.0),
        ((1.0, math.nan, 2.0), math.nan),
        ((math.inf, 2.0), math.inf),
        ((1e300,), math.inf),  # more than the record can say, and not refused
        ((-1e300,), -page.LARGEST_NORM),
    ],
)
def test_of_several_norms_in_a_step_the_largest_counts_and_nan_above_all(
    recorder: Recorder, memory: bytearray, norms: tuple[float, ...], kept: float
) -> None:
    for norm in norms:
        recorder.note_gradient(norm)
    recorder.end_step(1)
    recorder.note_gradient(0.5)
    recorder.end_step(2)
    first, second = records(memory)
    assert first.gradient_norm == pytest.approx(kept, nan_ok=True)
    assert second.gradient_norm == 0.5


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_gradients_that_are_no_numbers_are_counted(recorder: Recorder, norm: float) -> None:
    recorder.report_gradient(norm, 7)
    assert recorder.word(Word.NONFINITE_GRADIENTS) == 1
    assert recorder.word(Word.GRADIENT_STEP) == 7
    assert recorder.gradient_is_reported


def test_what_a_loss_scaler_passes_over_is_no_fault_but_is_counted_while_it_lasts(
    recorder: Recorder, memory: bytearray
) -> None:
    recorder.note_gradient(1.0)
    recorder.end_step(1)
    for step in (2, 3):
        recorder.scale()
        recorder.note_gradient(math.inf)
        recorder.end_step(step)
    assert recorder.word(Word.SCALER_SKIPS) == 2
    assert recorder.word(Word.NONFINITE_GRADIENTS) == 0
    assert page.bits_float(recorder.word(Word.GRADIENT_BITS)) == 1.0
    assert [record.flags for record in records(memory)] == [RecordFlag.GRADIENT, 0, 0]
    recorder.scale()
    recorder.note_gradient(4.0)
    assert recorder.word(Word.SCALER_SKIPS) == 0
    recorder.end_step(4)
    recorder.note_gradient(math.inf)  # not scaled: nobody passes over this one
    assert recorder.word(Word.NONFINITE_GRADIENTS) == 1


def test_an_order_is_seen_at_every_look_until_a_newer_one_comes(
    recorder: Recorder, memory: bytearray
) -> None:
    assert recorder.order(OrderKind.CHECKPOINT) is None
    first, second = order_for(3, identifier="a"), order_for(3, identifier="b")
    write_order(memory, first, 1)
    assert recorder.order(OrderKind.CHECKPOINT) == first
    assert recorder.order(OrderKind.CHECKPOINT) == first
    write_order(memory, second, 2)
    assert recorder.order(OrderKind.CHECKPOINT) == second
    assert recorder.order(OrderKind.STOP) is None


def test_an_order_for_another_attempt_is_refused(recorder: Recorder, memory: bytearray) -> None:
    write_order(memory, order_for(2), 1)
    assert recorder.order(OrderKind.CHECKPOINT) is None
    write_order(memory, order_for(3), 2)
    assert recorder.order(OrderKind.CHECKPOINT) == order_for(3)
    write_order(memory, order_for(4), 3)
    assert recorder.order(OrderKind.CHECKPOINT) == order_for(3)


def test_a_torn_order_is_looked_at_again(recorder: Recorder, memory: bytearray) -> None:
    write_order(memory, order_for(3), 1)
    start = page.order_offset(OrderKind.CHECKPOINT)
    whole = memory[start + 40]
    memory[start + 40] ^= 0xFF
    assert recorder.order(OrderKind.CHECKPOINT) is None
    memory[start + 40] = whole
    assert recorder.order(OrderKind.CHECKPOINT) == order_for(3)


def test_an_order_of_a_kind_from_the_future_is_left_alone(
    recorder: Recorder, memory: bytearray
) -> None:
    body, word = page.pack_order(
        Order(77, 3, 1, 7, 99, "z"),  # type: ignore[arg-type]
        1,
    )
    start = page.order_offset(OrderKind.STOP)
    memory[start : start + 128] = (word + body).ljust(128, b"\0")
    assert recorder.order(OrderKind.STOP) is None


def test_a_reply_and_last_words_can_be_read_back(recorder: Recorder, memory: bytearray) -> None:
    reply = Reply(ReplyState.SAVED, 7, 1000, 2000, "a")
    recorder.reply(reply)
    recorder.say({"type": "ValueError"})
    assert page.parse_reply(bytes(memory)) == reply
    assert page.parse_last_words(bytes(memory)) == {"type": "ValueError"}


def test_what_was_said_first_about_the_ending_holds(recorder: Recorder) -> None:
    recorder.finish(Ending.EXCEPTION)
    recorder.finish(Ending.FINISHED)
    assert recorder.word(Word.ENDING) == Ending.EXCEPTION
    assert recorder.word(Word.PHASE) != Phase.FINISHED


def test_flags_add_up(recorder: Recorder) -> None:
    recorder.add_flag(Flag.TORCH_IMPORTED)
    assert not recorder.loop_is_wrapped
    recorder.add_flag(Flag.LOOP_WRAPPED)
    assert recorder.loop_is_wrapped
    assert recorder.word(Word.FLAGS) == Flag.TORCH_IMPORTED | Flag.LOOP_WRAPPED


def test_a_detached_recorder_writes_nowhere(recorder: Recorder, memory: bytearray) -> None:
    before = bytes(memory)
    recorder.detach()
    recorder.enter(Phase.DATA)
    recorder.end_step(1)
    recorder.report_loss(1.0)
    recorder.say({"type": "x"})
    recorder.finish(Ending.FINISHED)
    assert bytes(memory) == before
    memory.extend(b"x")  # nothing holds on to the memory any more: this would be refused
