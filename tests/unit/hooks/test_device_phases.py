"""Parts of a step by the device's clock, on a GPU that is pretended as strictly as it can be."""

from __future__ import annotations

import pytest
from tests.unit.hooks.pretend_cuda import PretendCuda, Stream

from holdfast.contract import page
from holdfast.contract.page import Phase, Record
from holdfast.guard import Guard
from holdfast.recording.device_phases import (
    ALLOWED_NS,
    FIRST,
    MARKS,
    SAMPLES,
    DevicePhases,
    every_so_many,
)
from holdfast.recording.recorder import Recorder

WORK = ((Phase.FORWARD, 300), (Phase.BACKWARD, 600), (Phase.OPTIMIZER, 100))


class Rank:
    """The host launches at once what takes the device its time."""

    def __init__(self, cuda: PretendCuda) -> None:
        self.cuda = cuda
        self.memory = bytearray(page.PAGE_SIZE)
        self.errors = 0
        clock = lambda: int(cuda.now_us * 1000)  # noqa: E731
        self.recorder = Recorder(self.memory, attempt=0, clock=clock)
        self.phases = DevicePhases(cuda, self.recorder, Guard(self._err), clock)
        self.phases.every = 1
        self.steps = 0
        self.recorder.enter(Phase.DATA)

    def _err(self) -> None:
        self.errors += 1

    def step(self, work: tuple[tuple[Phase, float], ...] = WORK, host_us: float = 1000) -> bool:
        for phase, us in work:
            self.recorder.enter(phase)
            self.cuda.stream.launch(us)
        self.cuda.pass_time(host_us)
        self.recorder.enter(Phase.FORWARD)
        self.steps += 1
        listens = self.phases.end_step(self.steps)
        self.recorder.end_step(self.steps)
        self.recorder.enter(Phase.DATA)
        return listens

    def run(self, steps: int, host_us: float = 1000) -> None:
        for _ in range(steps):
            assert self.step(host_us=host_us)

    @property
    def told(self) -> list[Record]:
        found = [one for _, one in page.parse_records(bytes(self.memory), 0)]
        return [one for one in found if one.device_lag]


@pytest.fixture
def cuda() -> PretendCuda:
    return PretendCuda()


@pytest.fixture
def rank(cuda: PretendCuda) -> Rank:
    return Rank(cuda)


def test_a_steps_parts_come_by_the_devices_clock_with_a_later_steps_record(rank: Rank) -> None:
    rank.run(FIRST)
    assert rank.told == []
    rank.run(1)
    (told,) = rank.told
    assert (told.step - told.device_lag, told.device_lag) == (FIRST, 1)
    assert told.device_us == (0, 300, 600, 0, 100, 0)
    assert rank.errors == 0


def test_a_device_that_is_behind_tells_later_and_the_host_never_waits(
    rank: Rank, cuda: PretendCuda
) -> None:
    rank.run(FIRST, host_us=200)  # the device needs 1000 each
    for _ in range(FIRST * 4):
        rank.step(work=(), host_us=200)
    told = rank.told[0]
    assert told.step - told.device_lag == FIRST
    assert told.device_lag > 3
    assert told.device_us[:5] == (0, 300, 600, 0, 100)


def test_what_the_device_stood_idle_for_shows_where_it_stood(rank: Rank, cuda: PretendCuda) -> None:
    rank.run(FIRST - 1)
    cuda.pass_time(5000)  # the data came late
    rank.run(2)
    assert rank.told[0].device_us == (0, 300, 600, 0, 100, 5000)


def test_waiting_for_others_and_moving_a_batch_are_parts_of_their_own(rank: Rank) -> None:
    rank.run(FIRST - 1)
    rank.step(
        (
            (Phase.TRANSFERRING, 40),
            (Phase.FORWARD, 100),
            (Phase.BACKWARD, 200),
            (Phase.COMMUNICATING, 70),
            (Phase.BACKWARD, 10),
            (Phase.SAVING, 500),
            (Phase.OPTIMIZER, 80),
        )
    )
    rank.step()
    assert rank.told[0].device_us == (40, 100, 210, 70, 80, 0)


def test_only_sampled_steps_record_events(rank: Rank, cuda: PretendCuda) -> None:
    recorded = {}
    for step in range(1, 26):
        rank.phases.every = 8
        before = cuda.recorded
        rank.step()
        recorded[step] = cuda.recorded - before
    # The first event of a sample is recorded where the step before ends.
    assert [step for step, events in recorded.items() if events] == [7, 8, 15, 16, 23, 24]
    assert rank.recorder.on_phase is None


def test_how_often_follows_from_what_it_costs(rank: Rank, cuda: PretendCuda) -> None:
    rank.run(FIRST + 8)
    assert rank.phases.every == 1  # nothing costs anything yet
    cuda.event_us = 2.0
    rank.run(40)
    assert rank.phases.every == 8  # seven events, 2 us each
    before_us, before_steps = cuda.now_us, rank.steps
    rank.run(80)
    paid_us = cuda.now_us - before_us - 1000 * (rank.steps - before_steps)
    assert paid_us / 80 * 1000 <= ALLOWED_NS


@pytest.mark.parametrize(
    ("price_us", "step_ms", "every"),
    [(20, 0.1, 8), (20, 1, 8), (20, 10, 2), (20, 100, 1), (60, 1, 32), (60, 30, 2), (999, 1, 64)],
)
def test_ranks_are_compared_each_tenth_of_a_second_and_each_is_sampled_as_often(
    price_us: int, step_ms: float, every: int
) -> None:
    assert every_so_many(price_us * 1000, step_ms * 1000) == every
    assert every * step_ms <= 100 or every == 1


def test_of_steps_that_the_host_measures_seldom_only_those_are_timed(rank: Rank) -> None:
    for step in range(1, 130):
        rank.recorder.is_measured = step % 16 == 0
        rank.step()
    sampled = [one.step - one.device_lag for one in rank.told]
    assert sampled
    assert all(step % 16 == 0 for step in sampled)


def test_all_ranks_sample_the_same_steps_whenever_they_began(cuda: PretendCuda) -> None:
    early, late = Rank(cuda), Rank(PretendCuda())
    late.steps = 3  # of these it told another attempt
    for rank in (early, late):
        rank.phases.every = 8
        while rank.steps < 17:
            rank.step()
            rank.phases.every = 8
    sampled = [{one.step - one.device_lag for one in rank.told} for rank in (early, late)]
    assert sampled == [{8, 16}, {16}]


def test_a_step_with_more_borders_than_there_is_room_for_is_not_timed(
    rank: Rank, cuda: PretendCuda
) -> None:
    rank.run(FIRST - 1)
    rank.step(((Phase.FORWARD, 1), (Phase.BACKWARD, 1)) * MARKS)
    rank.run(1)
    assert rank.told == []
    rank.run(12)
    assert rank.told[0].device_us == (0, 300, 600, 0, 100, 0)
    assert rank.errors == 0


def test_a_device_that_is_far_behind_loses_samples_and_overwrites_none(
    rank: Rank, cuda: PretendCuda
) -> None:
    rank.run(FIRST + 20, host_us=1)
    before = cuda.recorded
    rank.run(5, host_us=1)
    assert cuda.recorded == before
    cuda.pass_time(10**6)
    rank.run(SAMPLES + 1)
    steps = [one.step - one.device_lag for one in rank.told]
    assert steps[:SAMPLES] == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]


def test_while_a_graph_is_captured_nothing_is_recorded_or_asked(
    rank: Rank, cuda: PretendCuda
) -> None:
    rank.run(FIRST)  # one is under way
    cuda.is_capturing = True
    rank.run(3)
    cuda.is_capturing = False
    rank.run(1)
    assert [one.step - one.device_lag for one in rank.told] == [FIRST]
    assert rank.errors == 0


def test_a_step_in_which_a_capture_begins_is_not_timed(rank: Rank, cuda: PretendCuda) -> None:
    rank.run(FIRST - 1)
    rank.recorder.enter(Phase.FORWARD)
    cuda.is_capturing = True
    rank.recorder.enter(Phase.BACKWARD)
    cuda.is_capturing = False
    rank.recorder.enter(Phase.OPTIMIZER)
    rank.run(2)
    assert rank.told == []
    assert rank.errors == 0


def test_a_script_that_goes_on_to_another_device_is_timed_there(
    rank: Rank, cuda: PretendCuda
) -> None:
    rank.run(FIRST + 2)
    told = len(rank.told)
    cuda.stream = Stream(cuda, "cuda:1")
    rank.run(12)
    assert len(rank.told) > told
    assert rank.errors == 0


def test_while_another_listens_to_phases_no_step_is_timed(rank: Rank, cuda: PretendCuda) -> None:
    heard: list[Phase] = []
    rank.recorder.on_phase = heard.append
    rank.run(FIRST + 2)
    assert (cuda.recorded, bool(heard)) == (0, True)
    rank.recorder.on_phase = None
    rank.run(2)
    assert cuda.recorded > 0


def test_a_rank_that_trains_on_a_cpu_is_left_alone(rank: Rank, cuda: PretendCuda) -> None:
    cuda.started = False
    listens = [rank.step() for _ in range(FIRST)]
    assert listens[-1] is False
    assert cuda.recorded == 0
