from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import NOBODY, publish, set_word, write_page
from tests.unit.ranks.scene import record

from holdfast.contract import page
from holdfast.contract.identity import read_identity
from holdfast_sidecar.ranks.page import Pages, RankPage
from holdfast_sidecar.ranks.probe import RanksProbe, Turns, parse_turns


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(tmp_path)
    yield made
    made.close()


def attempts(pages: Pages) -> list[tuple[int, int]]:
    return [(p.identity.attempt, p.identity.local_rank) for p in pages.refresh()]


def test_the_newest_attempt_is_whoever_claimed_last(tmp_path: Path, pages: Pages) -> None:
    write_page(tmp_path, attempt=7, claimed_ns=10)
    write_page(tmp_path, attempt=0, local_rank=0, claimed_ns=20)
    write_page(tmp_path, attempt=0, local_rank=1, claimed_ns=30)
    assert attempts(pages) == [(0, 0), (0, 1)]
    write_page(tmp_path, attempt=1, claimed_ns=40)
    assert attempts(pages) == [(1, 0)]
    assert attempts(pages) == [(1, 0)]


def test_a_page_that_was_replaced_is_opened_anew(tmp_path: Path, pages: Pages) -> None:
    path = write_page(tmp_path, claimed_ns=10)
    (first,) = pages.refresh()
    draft = tmp_path / "draft"
    draft.mkdir()
    write_page(draft, claimed_ns=99).replace(path)
    (second,) = pages.refresh()
    assert (first.identity.claimed_ns, second.identity.claimed_ns) == (10, 99)


def test_what_is_no_page_is_passed_over(tmp_path: Path, pages: Pages) -> None:
    write_page(tmp_path, local_rank=0)
    (tmp_path / "attempt-0-local-1.page").write_bytes(b"short")
    (tmp_path / "attempt-0-local-2.page").write_bytes(bytes(page.PAGE_SIZE))
    (tmp_path / "attempt-0-local-3.page").symlink_to(tmp_path / "attempt-0-local-0.page")
    (tmp_path / "attempt-0-local-4.page").mkdir()
    assert attempts(pages) == [(0, 0)]


def test_a_page_of_another_version_is_not_read_and_that_is_said_once(
    tmp_path: Path, pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_page(tmp_path, local_rank=1)
    laid_out = path.read_bytes()
    path.write_bytes(laid_out[:8] + (3).to_bytes(8, "little") + laid_out[16:4096])
    assert (attempts(pages), caplog.records) == ([], [])  # nobody holds it: of an earlier run
    with path.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert (attempts(pages), attempts(pages)) == ([], [])
    assert [one.getMessage() for one in caplog.records] == [
        "the rank of attempt-0-local-1.page is not watched: it has another version of Holdfast than"
        f" its sidecar (its page has layout 3, not {page.VERSION}); install the same one in both"
    ]


def test_no_descriptor_is_left_open(tmp_path: Path, pages: Pages) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for attempt in range(20):
        write_page(tmp_path, attempt=attempt, claimed_ns=attempt + 1)
        pages.refresh()
    pages.close()
    assert opened() == before


def test_every_record_is_handed_on_once(tmp_path: Path, pages: Pages) -> None:
    path = write_page(tmp_path)
    probe = RanksProbe(pages)
    for index in range(3):
        publish(path, index, record(step=index + 1, forward=5))
    (first,) = probe.read(1.0)
    publish(path, 3, record(step=4, forward=5))
    (second,) = probe.read(2.0)
    (third,) = probe.read(3.0)
    assert [r.step for r in first.records] == [1, 2, 3]
    assert [r.step for r in second.records] == [4]
    assert third.records == ()


def test_a_page_that_can_not_be_read_for_once_takes_nothing_from_any_rank(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for local_rank in range(2):
        publish(write_page(tmp_path, local_rank=local_rank), 0, record(step=1, forward=5))
    probe = RanksProbe(pages)
    probe.read(1.0)

    def fail(held: RankPage) -> bytes:
        if held.identity.local_rank == 0:
            raise OSError(5, "Input/output error")
        return read(held)

    read = RankPage.read
    monkeypatch.setattr(RankPage, "read", fail)
    publish(tmp_path / page.page_name(0, 0), 1, record(step=2, forward=5))
    for now_s in (2.0, 3.0):
        first, second = probe.read(now_s)
        assert (first.at_s, first.records) == (1.0, ())
        assert second.at_s == now_s
    assert caplog.text.count("can't look at rank 0") == 1
    monkeypatch.undo()
    first, _ = probe.read(4.0)
    assert (first.at_s, [r.step for r in first.records]) == (4.0, [2])


def test_a_page_that_could_never_be_read_is_not_there_yet(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(held: RankPage) -> bytes:
        raise OSError(5, "Input/output error")

    write_page(tmp_path)
    monkeypatch.setattr(RankPage, "read", fail)
    assert RanksProbe(pages).read(1.0) == []


def test_records_that_were_overtaken_while_reading_are_dropped(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_page(tmp_path)
    for index in range(page.RING_CAPACITY):
        publish(path, index, record(step=index, forward=5))
    probe = RanksProbe(pages)
    # The rank publishes ten more between the copy of the page and the second look at the count.
    monkeypatch.setattr(RankPage, "read_published", lambda held: page.RING_CAPACITY + 10)
    (look,) = probe.read(1.0)
    assert [r.step for r in look.records] == list(range(11, page.RING_CAPACITY))


def test_a_torn_record_is_left_out(tmp_path: Path, pages: Pages) -> None:
    path = write_page(tmp_path)
    for index in range(3):
        publish(path, index, record(step=index, forward=5))
    with path.open("r+b") as file:
        file.seek(page.RING_OFFSET + page.RECORD_SIZE + 8)
        file.write(b"torn")
    (look,) = RanksProbe(pages).read(1.0)
    assert [r.step for r in look.records] == [0, 2]


def test_a_living_rank_shows_its_process(tmp_path: Path, pages: Pages) -> None:
    path = write_page(tmp_path)
    set_word(path, page.Word.STEP, 12)
    set_word(path, page.Word.PHASE, page.Phase.BACKWARD)
    (look,) = RanksProbe(pages).read(1.0)
    assert (look.step, look.phase, look.is_gone) == (12, page.Phase.BACKWARD, False)
    assert look.process is not None
    assert look.process.state in ("R", "S")
    assert look.loss is None


def test_a_pid_that_another_process_has_by_now_is_not_the_rank(
    tmp_path: Path, pages: Pages
) -> None:
    write_page(tmp_path, start_ticks=1)
    (look,) = RanksProbe(pages).read(1.0)
    assert look.is_gone
    assert look.process is None


def test_a_rank_out_of_sight_lives_as_long_as_it_holds_its_page(
    tmp_path: Path, pages: Pages
) -> None:
    path = write_page(tmp_path, pid=NOBODY, start_ticks=1)
    with path.open("r+b") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        (look,) = RanksProbe(pages).read(1.0)
        assert not look.is_gone
        assert look.process is None
    (look,) = RanksProbe(pages).read(2.0)
    assert look.is_gone


def test_a_directory_that_is_not_there_has_no_ranks(tmp_path: Path) -> None:
    assert RanksProbe(Pages(tmp_path / "nothing")).read(1.0) == []


def test_turns_of_a_kernel_that_does_not_count_are_unknown() -> None:
    assert parse_turns("33360513 58337 32\n") == Turns(taken=32, queued_ns=58337)
    assert parse_turns("0 0 0\n") == Turns()
    assert parse_turns("") == Turns()


def test_what_a_rank_said_last_is_seen_without_secrets(tmp_path: Path) -> None:
    path = write_page(tmp_path, pid=NOBODY, start_ticks=1)
    words = {"type": "OSError", "message": "can't reach redis://:s3cr3t@h", "frame": "x.py:1 in f"}
    with path.open("r+b") as file:
        file.seek(page.LAST_WORDS_OFFSET)
        file.write(page.pack_last_words(words))
    (look,) = RanksProbe(Pages(tmp_path)).read(1.0)
    assert look.last_words is not None
    assert look.last_words["message"] == "can't reach redis://[redacted]@h"
    assert look.last_words["frame"] == "x.py:1 in f"
    (look,) = RanksProbe(Pages(tmp_path), clean=lambda said: said.replace("reach", "…")).read(1.0)
    assert look.last_words is not None
    assert look.last_words["message"] == "can't … redis://:s3cr3t@h"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user: needs root")


@needs_root
@pytest.mark.parametrize("whose", ["page", "directory", "job", "process"])
def test_what_another_user_forged_names_no_process_of_ours(
    tmp_path: Path, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A page names a pid and when it started, which everybody may read of any process."""
    directory = tmp_path / "holdfast-0" / "job" / "node"
    directory.mkdir(parents=True, mode=0o700)
    theirs = whose == "process"
    with subprocess.Popen(("sleep", "60"), user=65534 if theirs else None) as process:
        try:
            found = read_identity(process.pid)
            assert found is not None
            path = write_page(directory, pid=process.pid, start_ticks=found.start_ticks)
            forged = {"page": path, "directory": directory, "job": directory.parent}
            if not theirs:
                os.chown(forged[whose], 65534, 65534)
            pages = Pages(directory)
            held = pages.refresh()
            assert [page.pidfd for page in held] == ([None] if theirs else [])
            assert process.poll() is None
            pages.refresh()
            pages.close()
        finally:
            process.kill()
    told = [line for line in caplog.messages if "no rank here is watched" in line]
    assert len(told) == (whose in ("directory", "job"))
