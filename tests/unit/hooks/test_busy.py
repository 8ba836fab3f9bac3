"""`with holdfast.busy(...)`: what a script says that it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.contract import page
from holdfast.contract.page import PAGE_SIZE, Phase, Word, parse_busy, parse_words
from holdfast.rank import process
from holdfast.recording.recorder import Recorder


class Rank:
    """A rank's page with a clock of its own, in seconds."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.memory = bytearray(PAGE_SIZE)
        self.recorder = Recorder(self.memory, 0, lambda: int(self.now_s * 1e9))

    @property
    def busy(self) -> str:
        return parse_busy(parse_words(bytes(self.memory)))

    def word(self, word: Word) -> int:
        return parse_words(bytes(self.memory))[word]


@pytest.fixture
def rank() -> Iterator[Rank]:
    made = Rank()
    process.hold(made.recorder)
    yield made
    process.disown()


def test_it_stands_in_the_page_for_as_long_as_the_block_lasts(rank: Rank) -> None:
    rank.recorder.enter(Phase.FORWARD)
    with holdfast.busy("rollout"):
        assert (rank.busy, rank.recorder.phase) == ("rollout", Phase.IDLE)
        rank.now_s = 700.0
    assert (rank.busy, rank.recorder.phase) == ("", Phase.FORWARD)
    assert rank.word(Word.BUSY_CHANGED_NS) == 700_000_000_000, "silence counts from here"


def test_blocks_within_blocks_show_the_innermost(rank: Rank) -> None:
    with holdfast.busy("rollout"):
        with holdfast.busy("upload"):
            assert rank.busy == "upload"
        assert rank.busy == "rollout"
    assert rank.busy == ""


def test_an_exception_ends_the_block_and_passes(rank: Rank) -> None:
    with pytest.raises(KeyError, match="mine"), holdfast.busy("rollout"):
        raise KeyError("mine")
    assert rank.busy == ""


def test_what_it_took_counts_as_between_the_parts_of_the_step(rank: Rank) -> None:
    """So that no forward pass is expected to last so long afterwards."""
    rank.recorder.enter(Phase.FORWARD)
    rank.recorder.end_step(1)
    rank.now_s += 1.0
    with holdfast.busy("rollout"):
        rank.now_s += 600.0
    rank.now_s += 1.0
    rank.recorder.end_step(2)
    record = rank.recorder.newest_record()
    assert record is not None
    assert (record.forward_us, record.other_us) == (2_000_000, 600_000_000)


def test_a_rank_that_starts_is_starting_still(rank: Rank) -> None:
    with holdfast.busy("index"):
        assert (rank.busy, rank.recorder.phase) == ("index", Phase.STARTING)
    assert rank.recorder.phase is Phase.STARTING


def test_another_thread_than_the_one_that_trains_says_nothing(rank: Rank) -> None:
    seen = []

    def work() -> None:
        with holdfast.busy("upload"):
            seen.append(rank.busy)

    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert seen == [""]


def test_without_holdfast_it_does_nothing() -> None:
    assert process.current() is None
    with holdfast.busy("rollout"), holdfast.busy():
        pass


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("rollout", "rollout"),
        ("x" * 40, "x" * 32),
        ("\u00e9" * 20, "\u00e9" * 16),
        ("a" + "\u00e9" * 20, "a" + "\u00e9" * 15),
        ("", "busy"),
        ("\0", "busy"),
        ("red\x1b[31m\nline", "red?[31m?line"),
        ("\ud800", "?"),
    ],
)
def test_any_text_is_one_short_line(said: str, shown: str) -> None:
    words = [0] * page.WORD_COUNT
    words[Word.BUSY_WITH_1 : Word.BUSY_WITH_4 + 1] = page.pack_busy(said)
    assert parse_busy(tuple(words)) == shown
