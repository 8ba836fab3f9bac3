"""Orders to trace, as a rank follows them; the profiler is a list of what it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.contract import page
from holdfast.contract.page import Order, OrderKind, Phase, Reply, ReplyState
from holdfast.guard import Guard
from holdfast.patches.traces import listen
from holdfast.rank import process
from holdfast.recording.recorder import Recorder
from holdfast.recording.step_trace import StepTrace

FAR_NS = 10**18


@dataclass
class Profiler:
    """Writes down what it is asked for."""

    asked: list[str] = field(default_factory=list)
    in_the_way: str = ""
    fails_in: str = ""
    taken_by: str = ""

    def obstacle(self) -> str:
        return self.in_the_way

    def warm_up(self) -> None:
        self._ask("warm up")

    def begin(self) -> None:
        self._ask("begin")

    def mark(self, step: int) -> None:
        self._ask(f"step {step}")

    def end(self) -> None:
        self._ask("end")

    def write(self, path: Path) -> int:
        self._ask("write")
        return path.write_bytes(b"trace")

    def drop(self) -> None:
        self._ask("drop")

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.fails_in:
            raise RuntimeError("Kineto\nis ill")


@dataclass
class Rank:
    """A rank whose steps the test makes."""

    evidence: Path
    attempt: int = 3
    now_ns: int = 0
    later: list[Callable[[], None]] = field(default_factory=list)
    step_now: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, self.attempt, clock=lambda: self.now_ns)
        self.profiler = Profiler()
        self.trace = StepTrace(
            self.recorder,
            5,
            self.evidence,
            lambda: self.profiler,
            lambda: self.now_ns,
            self.later.append,
        )
        self.errors = 0
        listen(self.recorder, self.trace, Guard(self._count))

    def _count(self) -> None:
        self.errors += 1

    def order(self, identifier: str = "t1", **given: int) -> None:
        fields = {"attempt": self.attempt, "step": 4, "deadline_ns": FAR_NS, "every": 2} | given
        order = Order(OrderKind.TRACE, epoch=1, identifier=identifier, **fields)
        self.sequence += 1
        body, word = page.pack_order(order, self.sequence)
        start = page.order_offset(OrderKind.TRACE)
        self.memory[start + 8 : start + 8 + len(body)] = body
        self.memory[start : start + 8] = word

    def step(self, count: int = 1, forward_us: int = 1000) -> None:
        for _ in range(count):
            self.recorder.enter(Phase.FORWARD)
            self.now_ns += forward_us * 1000
            self.recorder.enter(Phase.OPTIMIZER)
            self.now_ns += 500_000
            self.step_now += 1
            self.recorder.end_step(self.step_now)

    def write(self) -> None:
        while self.later:
            self.later.pop(0)()

    @property
    def reply(self) -> Reply | None:
        return page.parse_reply(bytes(self.memory), OrderKind.TRACE)

    @property
    def state(self) -> ReplyState | None:
        return None if self.reply is None else self.reply.state

    def facts(self, identifier: str = "t1") -> dict[str, object]:
        path = self.evidence / "traces" / identifier / page.trace_facts_name(5)
        told: dict[str, object] = json.loads(path.read_text())
        return told


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rank:
    made = Rank(tmp_path / "evidence")
    monkeypatch.setattr(process, "current", lambda: made.recorder)
    return made


def test_it_warms_up_one_step_ahead_and_records_just_the_steps_that_were_asked_for(
    rank: Rank,
) -> None:
    rank.order(step=4, every=2)
    rank.step(1)
    assert (rank.state, rank.profiler.asked) == (ReplyState.ARMED, [])
    rank.step(2)
    assert rank.profiler.asked == ["warm up"]
    rank.step(1)
    begun = ["warm up", "begin", "step 4"]
    assert (rank.state, rank.profiler.asked) == (ReplyState.SAVING, begun)
    rank.step(2)
    assert (rank.state, rank.profiler.asked) == (ReplyState.SAVING, [*begun, "step 5", "end"])
    rank.write()
    assert rank.state == ReplyState.SAVED
    assert rank.reply is not None
    assert (rank.reply.size_bytes, rank.reply.step) == (5, 4)
    folder = rank.evidence / "traces" / "t1"
    assert sorted(path.name for path in folder.iterdir()) == ["rank-5.facts.json", "rank-5.json.gz"]
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}


def test_the_parts_that_it_tells_are_those_of_the_traced_steps_alone(rank: Rank) -> None:
    rank.order(step=2, every=2)
    rank.step(2, forward_us=9000)
    rank.step(1, forward_us=1000)
    rank.step(1, forward_us=3000)
    rank.step(1, forward_us=9000)
    rank.write()
    parts = rank.facts()["parts_us"]
    assert isinstance(parts, dict)
    assert {part: us for part, us in parts.items() if us} == {"forward": 2000, "optimizer": 500}


def test_a_steady_state_is_no_work_for_it(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    on_trace = rank.recorder.on_trace
    assert on_trace is not None

    def counted(step: int) -> int:
        calls.append(step)
        return on_trace(step)

    rank.recorder.on_trace = counted
    rank.step(5)
    assert calls == []
    rank.order(step=8, every=1)
    rank.step(10)
    assert calls == [6, 7, 8, 9]


def test_the_steps_that_a_trace_has_to_do_with_are_marked_and_no_others(rank: Rank) -> None:
    rank.order(step=4, every=2)
    rank.step(9)
    records = [record for _, record in page.parse_records(bytes(rank.memory), 0)]
    marked = [record.step for record in records if record.flags & page.RecordFlag.TRACED]
    assert marked == [4, 5, 6, 7]  # made ready, twice traced, ended


def test_what_holdfast_does_about_a_trace_counts_as_saving_and_never_as_slow(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Phase] = []
    monkeypatch.setattr(rank.profiler, "warm_up", lambda: seen.append(rank.recorder.phase))
    rank.order(step=2)
    rank.recorder.enter(Phase.FORWARD)
    rank.step(1)
    assert seen == [Phase.SAVING]
    assert rank.recorder.phase is Phase.OPTIMIZER


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"step": 2}, ReplyState.MISSED),
        ({"step": 3}, ReplyState.SAVING),
        ({"attempt": 2}, None),
        ({"attempt": 4}, None),
    ],
    ids=["past", "this very step", "an earlier attempt", "a later attempt"],
)
def test_an_order_is_for_the_future_of_this_attempt(
    rank: Rank, given: dict[str, int], state: ReplyState | None
) -> None:
    rank.step(2)
    rank.order("t1", **given)
    rank.step(1)
    assert rank.state == state


@pytest.mark.parametrize("steps", [1, 3, 5], ids=["armed", "warm", "recording"])
def test_a_withdrawn_order_ends_where_it_is(rank: Rank, steps: int) -> None:
    rank.order(step=4, every=5)
    rank.step(steps)
    rank.order(step=4, every=5, deadline_ns=0)
    rank.step(1)
    rank.write()
    assert rank.state == ReplyState.VOID
    assert ("drop" in rank.profiler.asked) == (steps > 1)
    asked = list(rank.profiler.asked)
    rank.step(5)
    assert rank.profiler.asked == asked


def test_an_order_does_not_outlive_its_deadline(rank: Rank) -> None:
    rank.order(step=3, every=50, deadline_ns=10_000_000)
    rank.step(20)
    rank.write()
    assert rank.state == ReplyState.VOID
    assert rank.profiler.asked[-1] == "drop"


def test_another_order_takes_the_place_of_one_that_is_under_way(rank: Rank) -> None:
    rank.order("t1", step=3, every=5)
    rank.step(4)
    first, rank.profiler = rank.profiler, Profiler()
    rank.order("t2", step=8, every=1)
    rank.step(6)
    rank.write()
    assert first.asked[-1] == "drop"
    assert rank.profiler.asked == ["warm up", "begin", "step 8", "end", "write"]
    assert rank.facts("t1")["error"] == "another trace was asked for"
    assert rank.state == ReplyState.SAVED


def test_where_the_script_profiles_itself_nothing_is_touched(rank: Rank) -> None:
    rank.profiler.in_the_way = "the script's own profiler is active"
    rank.order(step=3)
    rank.step(5)
    rank.write()
    assert rank.profiler.asked == []
    assert rank.state == ReplyState.FAILED
    assert rank.facts()["error"] == "the script's own profiler is active"


def test_a_profiler_that_the_script_took_is_not_ended_as_if_it_were_ours(rank: Rank) -> None:
    rank.order(step=3, every=3)
    rank.step(4)
    rank.profiler.taken_by = "the script began a profiler of its own"
    rank.step(1)
    rank.write()
    assert "end" not in rank.profiler.asked
    assert rank.facts()["error"] == "the script began a profiler of its own"


@pytest.mark.parametrize("fails_in", ["warm up", "begin", "step 4", "end", "write"])
def test_a_profiler_that_fails_is_told_of_and_training_goes_on(rank: Rank, fails_in: str) -> None:
    rank.profiler.fails_in = fails_in
    rank.order(step=4, every=1)
    rank.step(8)
    rank.write()
    assert rank.state == ReplyState.FAILED
    assert rank.facts()["error"] == "RuntimeError: Kineto is ill"
    assert rank.recorder.phase is Phase.OPTIMIZER
    assert rank.errors == 0


def test_an_error_of_ours_is_counted_and_ends_the_trace(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("ours")

    monkeypatch.setattr(rank.profiler, "begin", broken)
    rank.order(step=4, every=1)
    rank.step(8)
    rank.write()
    assert (rank.errors, rank.state) == (1, ReplyState.FAILED)
    assert rank.profiler.asked == ["warm up", "drop"]


def test_a_folder_that_cannot_be_made_costs_the_trace_alone(rank: Rank) -> None:
    rank.evidence.write_text("a file is in the way")
    rank.order(step=2, every=1)
    rank.step(4)
    rank.write()
    assert rank.state == ReplyState.FAILED
