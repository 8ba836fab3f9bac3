from __future__ import annotations

import math
from pathlib import Path

from holdfast.contract import page
from holdfast_sidecar.launcher.rank_state import (
    has_stepped,
    read_completed_steps,
    read_onset,
    read_step_end_s,
    read_words,
    said_finished,
)
from holdfast_sidecar.records.plan import Member


def write_page(path: Path, ending: page.Ending) -> None:
    who = page.Identity(1, 2, 0, 0, 0, 0, 1, 0, "n", "j")
    content = bytearray(page.PAGE_SIZE)
    packed = page.pack_identity(who)
    content[: len(packed)] = packed
    offset = page.WORDS_OFFSET + 8 * page.Word.ENDING
    content[offset : offset + 8] = int(ending).to_bytes(8, "little")
    path.write_bytes(content)


def test_the_page_says_since_when_losses_were_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "p"
    assert read_onset(path) == -1
    write_page(path, page.Ending.EXCEPTION)
    assert read_onset(path) == -1
    content = bytearray(path.read_bytes())
    losses = [1.0, math.nan, 2.0, math.inf, math.nan]
    for number, loss in enumerate(losses):
        record = page.Record(number + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, loss, page.RecordFlag.LOSS)
        start = page.RING_OFFSET + number * page.RECORD_SIZE
        packed = page.pack_record(record)
        content[start : start + len(packed)] = packed
    words = {
        page.Word.PUBLISHED: len(losses),
        page.Word.LOSS_BITS: page.float_bits(math.nan),
        page.Word.LOSS_STEP: len(losses),
    }
    for word, value in words.items():
        offset = page.WORDS_OFFSET + 8 * word
        content[offset : offset + 8] = value.to_bytes(8, "little")
    path.write_bytes(content)
    assert read_onset(path) == 4


def test_the_page_says_whether_the_rank_finished(tmp_path: Path) -> None:
    path = tmp_path / "p"
    assert not said_finished(read_words(path))
    for ending in page.Ending:
        write_page(path, ending)
        assert said_finished(read_words(path)) == (ending is page.Ending.FINISHED)
    path.write_bytes(path.read_bytes()[:1000])
    assert not said_finished(read_words(path))


def test_a_rank_has_stepped_once_its_optimizer_was_called_or_a_step_recorded() -> None:
    words = [0] * page.WORD_COUNT
    words[page.Word.BOUNDARY_NS] = 1  # set when the page is claimed
    assert not has_stepped(tuple(words))
    for word in (page.Word.OPTIMIZER_CALLS, page.Word.PUBLISHED):
        stepped = words.copy()
        stepped[word] = 1
        assert has_stepped(tuple(stepped))


def test_how_far_ranks_came_is_read_from_the_pages_they_left(tmp_path: Path) -> None:
    for local_rank, step in ((0, 41), (2, 40)):
        path = tmp_path / page.page_name(3, local_rank)
        write_page(path, page.Ending.RUNNING)
        content = bytearray(path.read_bytes())
        offset = page.WORDS_OFFSET + 8 * page.Word.STEP
        content[offset : offset + 8] = step.to_bytes(8, "little")
        path.write_bytes(content)
    member = Member("n", "x", 1, first_rank=4, slots=3)
    assert read_completed_steps(tmp_path, 3, member) == {"4": 41, "6": 40}
    assert read_completed_steps(tmp_path, 2, member) == {}


def test_no_page_has_no_words(tmp_path: Path) -> None:
    assert read_words(tmp_path / "none") is None


def test_the_page_says_when_the_last_step_ended(tmp_path: Path) -> None:
    path = tmp_path / "p"
    assert read_step_end_s(read_words(path)) is None
    write_page(path, page.Ending.EXCEPTION)
    content = bytearray(path.read_bytes())
    offset = page.WORDS_OFFSET + 8 * page.Word.BOUNDARY_NS
    content[offset : offset + 8] = (1_500_000_000).to_bytes(8, "little")
    path.write_bytes(content)
    assert read_step_end_s(read_words(path)) == 1.5
