from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page
from tests.unit.ranks import scene

from holdfast.contract.page import Phase, Word
from holdfast_sidecar.ranks import flight_recorder
from holdfast_sidecar.ranks.flight_recorder import (
    AGAIN_S,
    EAGER_ROUNDS,
    LATER_S,
    STANDS_S,
    FlightRecorderClient,
    UnknownHandlerError,
)
from holdfast_sidecar.ranks.observation import RankHistory, follow
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.collectives import CollectiveState, RankTrace

WAIT_S = 5.0
"""For a thread that only has to get its turn."""


@dataclass
class Ranks:
    """Answers as the test says, each time it is let to."""

    answer: RankTrace | Exception = field(default_factory=lambda: RankTrace(0, answered=True))
    asked: list[int] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def ask(self, path: Path, rank: int) -> RankTrace:
        self.asked.append(rank)
        assert self.may_answer.wait(WAIT_S)
        if isinstance(self.answer, Exception):
            raise self.answer
        return replace(self.answer, rank=rank)


@dataclass
class Stage:
    """An inquiry among two ranks, and its clock."""

    inquiry: FlightRecorderClient
    ranks: Ranks
    told: threading.Event
    histories: dict[int, RankHistory]

    def follow(self, now_s: float, wanted: bool = True) -> dict[int, RankTrace]:
        return self.inquiry.follow(wanted, [1], self.histories, now_s)

    def hear(self, now_s: float) -> dict[int, RankTrace]:
        """Ask, and let all that were asked answer."""
        self.follow(now_s)
        self.ranks.may_answer.set()
        for thread in threading.enumerate():
            if thread.name.startswith("ask rank"):
                thread.join(WAIT_S)
        return self.follow(now_s)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    for local_rank in range(2):
        write_page(tmp_path, local_rank=local_rank)
    pages, ranks, told = Pages(tmp_path), Ranks(), threading.Event()
    pages.refresh()
    looks = [scene.look(0.0, Phase.COMMUNICATING, rank=rank) for rank in range(2)]
    histories = {look.rank: scene.history(look) for look in looks}
    yield Stage(FlightRecorderClient(pages.held, told.set, ranks.ask), ranks, told, histories)
    ranks.may_answer.set()
    pages.close()


def test_nobody_is_asked_without_suspicion(stage: Stage) -> None:
    assert stage.follow(0.0, wanted=False) == {}
    assert stage.ranks.asked == []


def test_the_loop_never_waits_for_an_answer_and_asks_once_at_a_time(stage: Stage) -> None:
    assert stage.follow(0.0) == {}
    assert stage.follow(10.0) == {}
    assert sorted(stage.ranks.asked) == [0, 1]
    assert not stage.told.is_set()
    found = stage.hear(10.0)
    assert stage.told.is_set()
    assert sorted(found) == [0, 1]
    assert found[1].is_overdue
    assert not found[0].is_overdue


def test_a_rank_is_asked_again_where_no_thread_was_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert stage.follow(0.0) == {}
    assert stage.hear(AGAIN_S).keys() == {0, 1}


def test_what_is_told_again_and_again_stands(stage: Stage) -> None:
    assert not stage.hear(0.0)[0].stands
    stage.told.clear()
    assert not stage.hear(AGAIN_S)[0].stands
    assert not stage.told.is_set()
    assert stage.hear(STANDS_S)[0].stands
    assert stage.told.is_set(), "the loop shall not wait for its next look"
    stage.ranks.answer = RankTrace(0, answered=True, is_whole=True)
    assert not stage.hear(STANDS_S + AGAIN_S)[0].stands


def test_one_answer_stands_for_nothing_however_late_the_next_one_is(stage: Stage) -> None:
    stage.hear(0.0)
    stage.ranks.may_answer.clear()
    assert not stage.follow(AGAIN_S)[0].stands
    assert not stage.follow(10 * STANDS_S)[0].stands


def test_what_a_rank_told_before_it_moved_stands_no_longer(stage: Stage) -> None:
    for number in range(3):
        stage.hear(number * AGAIN_S)
    moved = scene.look(STANDS_S + 0.1, Phase.FORWARD, since_s=STANDS_S + 0.1, rank=0)
    stage.histories[0] = scene.history(moved)
    told = stage.follow(STANDS_S + 0.1)
    assert (told[0].stands, told[1].stands) == (False, True)


def test_what_a_rank_told_before_it_was_last_on_a_cpu_may_be_out_of_date(stage: Stage) -> None:
    assert stage.hear(0.0)[0].told_standing
    ran = scene.look(0.3, Phase.COMMUNICATING, rank=0, turns=51)
    stage.histories[0] = follow(stage.histories[0], ran)
    assert not stage.follow(0.3)[0].told_standing
    assert stage.hear(AGAIN_S)[0].told_standing


def test_whoever_waits_for_long_is_asked_less_often(stage: Stage) -> None:
    for number in range(EAGER_ROUNDS + 1):
        stage.hear(number * AGAIN_S)
    asked = len(stage.ranks.asked)
    stage.hear(EAGER_ROUNDS * AGAIN_S + LATER_S / 2)
    assert len(stage.ranks.asked) == asked
    stage.hear(EAGER_ROUNDS * AGAIN_S + LATER_S)
    assert len(stage.ranks.asked) == asked + 2


def test_all_is_forgotten_once_the_suspicion_is_over(stage: Stage) -> None:
    stage.hear(0.0)
    assert stage.follow(1.0, wanted=False) == {}
    stage.ranks.may_answer.clear()
    assert stage.follow(2.0) == {}


def test_an_answer_that_makes_no_sense_is_none(stage: Stage) -> None:
    stage.ranks.answer = ValueError("no dump")
    assert not stage.hear(0.0)[0].answered


def test_our_own_count_comes_from_the_page(stage: Stage) -> None:
    words = list(stage.histories[0].look.words)
    words[Word.COLLECTIVES_ENTERED], words[Word.COLLECTIVES_LEFT] = 9, 8
    look = replace(stage.histories[0].look, words=tuple(words))
    stage.histories[0] = scene.history(look)
    trace = stage.hear(0.0)[0]
    assert (trace.calls_entered, trace.calls_left) == (9, 8)


def test_in_a_call_that_communicates_without_a_collective_a_message_may_be_awaited(
    stage: Stage,
) -> None:
    computing = scene.look(0.0, Phase.FORWARD, rank=0)
    stage.histories[0] = scene.history(computing)
    told = stage.hear(0.0)
    assert not told[0].awaits_message
    assert told[1].awaits_message
    pending = CollectiveState("0", "gloo", "default_pg", 3, 2)
    stage.ranks.answer = RankTrace(0, answered=True, standings=[pending])
    assert not stage.hear(AGAIN_S)[1].awaits_message


def test_half_an_answer_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's recorder may hang with its driver while gloo's answers at once."""
    refuses: dict[str, OSError] = {}

    def answer(path: Path, deadline_s: float, handler: str) -> bytes:
        if handler in refuses:
            raise refuses[handler]
        return b"{}"

    monkeypatch.setattr(flight_recorder, "ask", answer)
    page = write_page(tmp_path)
    page.with_suffix(".groups").write_text('{"0":{"title":"default_pg","ranks":[0,1]}}')
    for error, answered in ((UnknownHandlerError(), True), (TimeoutError(), False)):
        refuses["dump_nccl_trace_json"] = error
        told = flight_recorder.ask_rank(page, 0)
        assert (told.answered, told.groups) == (answered, {"0": 2})


def test_where_hooks_told_of_no_group_the_one_of_all_ranks_is_known(stage: Stage) -> None:
    standing = CollectiveState("0", "gloo", "default_pg", 3, 2)
    stage.ranks.answer = RankTrace(0, answered=True, standings=[standing])
    assert stage.hear(0.0)[0].groups == {"0": 2}
