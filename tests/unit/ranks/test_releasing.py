"""When a rank that holds SIGTERM has nothing more to do, under plain torchrun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from holdfast.contract.page import (
    END_SIGNAL,
    PAGE_SIZE,
    WORDS_OFFSET,
    Ending,
    Flag,
    Identity,
    Word,
    pack_identity,
    parse_words,
)
from holdfast.contract.permit import Handle, Permit
from holdfast_sidecar.ranks import ending as releasing
from holdfast_sidecar.ranks.ending import is_over, release
from holdfast_sidecar.ranks.observation import RankHistory, RankLook
from holdfast_sidecar.records.plan import Plan


@dataclass
class PretendPage:
    """A rank's page and process."""

    rank: int
    words: dict[Word, int]
    gone: bool = False
    sent: list[int] = field(default_factory=list)

    @property
    def identity(self) -> Identity:
        return Identity(100 + self.rank, 1, 3, 1, self.rank, self.rank, 2, 1, "n", "j")

    def read(self) -> bytes:
        page = bytearray(PAGE_SIZE)
        zone = pack_identity(self.identity)
        page[: len(zone)] = zone
        for word, value in self.words.items():
            start = WORDS_OFFSET + 8 * word
            page[start : start + 8] = value.to_bytes(8, "little")
        return bytes(page)

    def is_gone(self) -> bool:
        return self.gone

    @property
    def pidfd(self) -> int:
        return 500 + self.rank


@pytest.fixture(autouse=True)
def _what_is_signalled_notes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(permit: Permit) -> None:
        assert isinstance(permit.subject, Handle)
        KNOWN[permit.subject.pidfd].sent.append(permit.subject.number)

    monkeypatch.setattr(releasing, "signal_handle", note)


KNOWN: dict[int, PretendPage] = {}
HOLDS = {Word.FLAGS: int(Flag.HOLDS_TERMINATION)}
TOLD = HOLDS | {Word.TERMINATION_NS: 5}
RUNNING = Plan(3, 1, "running")


def released(
    plan: Plan | None, *given: PretendPage, histories: Mapping[int, RankHistory] | None = None
) -> list[list[int]]:
    KNOWN.clear()
    KNOWN.update({page.pidfd: page for page in given})
    release(plan, given, histories or {})  # type: ignore[arg-type]
    return [page.sent for page in given]


def seen(page: PretendPage, exit_code: int | None, is_gone: bool = True) -> RankHistory:
    look = RankLook(page.identity, 1.0, parse_words(page.read()), is_gone, exit_code=exit_code)
    return RankHistory(look, gone_since_s=1.0 if is_gone else None, exit_code=exit_code)


def test_ranks_of_a_running_attempt_are_left_alone_even_when_they_were_told_to_go() -> None:
    assert released(RUNNING, PretendPage(0, HOLDS), PretendPage(1, TOLD)) == [[], []]


def test_the_others_end_when_one_has_failed_as_torchrun_means_to_end_them() -> None:
    found = released(RUNNING, PretendPage(0, HOLDS), PretendPage(1, HOLDS, gone=True))
    assert found == [[END_SIGNAL], []]


def test_nobody_ends_because_one_has_finished() -> None:
    finished = PretendPage(1, {Word.ENDING: Ending.FINISHED}, gone=True)
    assert released(RUNNING, PretendPage(0, HOLDS), finished) == [[], []]


@pytest.mark.parametrize(
    ("ending", "exit_code", "is_bad"),
    [
        (Ending.RUNNING, 0, False),
        (Ending.RUNNING, 1, True),
        (Ending.RUNNING, None, True),
        (Ending.FINISHED, 3, True),
        (Ending.FINISHED, None, False),
    ],
    ids=["os._exit(0)", "a failure", "nobody knows", "raise SystemExit(3)", "a good end"],
)
def test_how_a_rank_ended_is_told_by_its_exit_code_and_else_by_its_page(
    ending: Ending, exit_code: int | None, is_bad: bool
) -> None:
    ended = PretendPage(1, HOLDS | {Word.ENDING: ending}, gone=True)
    found = released(RUNNING, PretendPage(0, HOLDS), ended, histories={1: seen(ended, exit_code)})
    assert found == [[END_SIGNAL] if is_bad else [], []]


def test_of_a_rank_that_went_since_the_last_look_the_next_one_tells_how() -> None:
    ended = PretendPage(1, HOLDS, gone=True)
    histories = {1: seen(ended, None, is_gone=False)}
    assert released(RUNNING, PretendPage(0, HOLDS), ended, histories=histories) == [[], []]


def test_who_holds_nothing_is_left_to_torchrun() -> None:
    assert released(Plan(3, 1, "ended"), PretendPage(0, {}), PretendPage(1, HOLDS)) == [
        [],
        [END_SIGNAL],
    ]


@pytest.mark.parametrize(
    ("plan", "was_told", "over"),
    [
        (None, True, False),
        (Plan(2, 1, "stopped"), True, False),
        (RUNNING, True, False),
        (Plan(3, 1, "evidence"), True, False),
        (Plan(3, 1, "ended"), False, True),
        (Plan(4, 1, "running"), False, True),
        (Plan(3, 1, "stopped"), True, True),
        (Plan(3, 1, "stopped"), False, False),
        (Plan(3, 1, "done"), True, False),
    ],
)
def test_an_attempt_is_over(plan: Plan | None, was_told: bool, over: bool) -> None:
    assert is_over(plan, 3, was_told) is over
