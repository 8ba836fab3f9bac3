"""Who gets a page. Two claims in one process conflict as in two: the lock is per opening."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from holdfast.contract import page
from holdfast.contract.page import Identity, Word
from holdfast.rank.claim import ClaimedPage, claim
from holdfast.recording.recorder import Recorder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def identity(pid: int = 100, attempt: int = 0) -> Identity:
    return Identity(pid, 5, attempt, 1, 2, 0, 4, 6, "node", "job")


def taken(folder: Path, pid: int = 100) -> ClaimedPage:
    claimed = claim(str(folder), identity(pid))
    assert claimed is not None
    return claimed


def owner(folder: Path) -> int:
    zone = page.parse_identity_zone((folder / page.page_name(0, 0)).read_bytes())
    assert zone is not None
    return zone.pid


def test_a_claimed_page_is_whole_allocated_private_and_locked(folder: Path) -> None:
    claimed = taken(folder)
    (path,) = folder.iterdir()
    facts = path.stat()
    assert page.parse_identity_zone(path.read_bytes()) == identity()
    assert facts.st_size == page.PAGE_SIZE
    assert facts.st_blocks * 512 >= page.PAGE_SIZE
    assert facts.st_mode & 0o777 == 0o600
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    claimed.let_go()


def test_a_page_of_a_living_owner_is_left_to_it(folder: Path) -> None:
    claimed = taken(folder, pid=100)
    assert claim(str(folder), identity(200)) is None
    assert owner(folder) == 100
    claimed.let_go()


def test_a_page_whose_owner_died_before_its_first_step_is_taken_over(folder: Path) -> None:
    taken(folder, pid=100).let_go()
    successor = taken(folder, pid=200)
    assert owner(folder) == 200
    assert [path.name for path in folder.iterdir()] == [page.page_name(0, 0)]
    successor.let_go()


def test_a_page_whose_owner_died_after_a_step_stays_as_evidence(folder: Path) -> None:
    claimed = taken(folder, pid=100)
    recorder = Recorder(claimed.memory, 0)
    recorder.end_step(1)
    recorder.detach()
    claimed.let_go()
    assert claim(str(folder), identity(200)) is None
    assert owner(folder) == 100


def test_a_start_by_others_replaces_all_that_the_one_before_left_dead(folder: Path) -> None:
    dead = [claim(str(folder), Identity(n, 5, 0, 1, n, n, 3, 6, "node", "job")) for n in range(2)]
    alive = claim(str(folder), Identity(7, 5, 0, 1, 2, 2, 3, 6, "node", "job"))
    assert alive is not None
    for page_of_old in dead:
        assert page_of_old is not None
        recorder = Recorder(page_of_old.memory, 0)
        recorder.end_step(1)
        recorder.detach()
        page_of_old.let_go()
    successor = claim(str(folder), identity(200), replaces_dead=True)
    assert successor is not None
    assert owner(folder) == 200
    assert sorted(path.name for path in folder.iterdir()) == [page.page_name(0, n) for n in (0, 2)]
    assert claim(str(folder), identity(300), replaces_dead=True) is None
    successor.let_go()
    alive.let_go()


def test_every_attempt_has_a_page_of_its_own(folder: Path) -> None:
    pages = [claim(str(folder), identity(attempt=attempt)) for attempt in range(3)]
    assert len(list(folder.iterdir())) == 3
    for claimed in pages:
        assert claimed is not None
        claimed.let_go()


def test_who_only_asks_whether_the_page_is_free_does_not_pass_for_an_owner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(folder, pid=100).let_go()
    glance = os.open(folder / page.page_name(0, 0), os.O_RDONLY)
    fcntl.flock(glance, fcntl.LOCK_SH)
    monkeypatch.setattr("holdfast.rank.claim.time.sleep", lambda _: os.close(glance))
    taken(folder, pid=200).let_go()
    assert owner(folder) == 200


def test_a_page_that_changed_hands_between_opening_and_locking_is_looked_at_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(folder, pid=100).let_go()
    winners: list[ClaimedPage] = []
    lock = fcntl.flock

    def overtaken(descriptor: int, operation: int) -> None:
        if not winners:
            monkeypatch.setattr("holdfast.rank.claim.fcntl.flock", lock)
            winners.append(taken(folder, pid=300))
        lock(descriptor, operation)

    monkeypatch.setattr("holdfast.rank.claim.fcntl.flock", overtaken)
    assert claim(str(folder), identity(200)) is None
    assert owner(folder) == 300
    winners[0].let_go()


def test_a_directory_reached_through_a_link_is_refused(folder: Path) -> None:
    real, link = folder / "real", folder / "link"
    real.mkdir(mode=0o700)
    link.symlink_to(real)
    with pytest.raises(OSError, match="link"):
        claim(str(link), identity())


def test_a_directory_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="0700"):
        claim(str(folder), identity())
    folder.chmod(0o700)


def test_a_page_that_is_a_link_is_refused(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_bytes(b"precious")
    (folder / page.page_name(0, 0)).symlink_to(victim)
    with pytest.raises(OSError, match="page"):
        claim(str(folder), identity())
    assert victim.read_bytes() == b"precious"


def test_without_room_nothing_is_left_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.rank.claim.os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        claim(str(folder), identity())
    assert list(folder.iterdir()) == []


def test_letting_go_frees_the_lock_although_the_mapping_held_a_descriptor_too(
    folder: Path,
) -> None:
    claimed = taken(folder)
    recorder = Recorder(claimed.memory, 0)
    recorder.set_word(Word.RESUMED_STEP, 5)
    recorder.detach()
    claimed.let_go()
    with (folder / page.page_name(0, 0)).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
