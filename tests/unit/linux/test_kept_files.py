"""Attributes that are kept open say what is so now, and nothing once they are gone."""

from __future__ import annotations

import os
import subprocess
from mmap import mmap
from pathlib import Path

import pytest

from holdfast_sidecar.linux.files import KeptFiles


@pytest.fixture
def files() -> KeptFiles:
    return KeptFiles()


@pytest.fixture
def attribute(tmp_path: Path) -> str:
    path = tmp_path / "ports/1/symbol_error"
    path.parent.mkdir(parents=True)
    path.write_text("3\n")
    return str(path)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_each_reading_says_what_is_so_now(files: KeptFiles, attribute: str) -> None:
    assert files.read_if_any(attribute) == "3\n"
    before = descriptors()
    with Path(attribute).open("r+") as written:
        written.write("12\n")
    assert files.read_if_any(attribute) == "12\n"
    assert descriptors() == before


def test_the_kernels_own_files_are_made_anew_at_each_reading(files: KeptFiles) -> None:
    """As attributes of /sys are. A thread's page faults can be watched growing."""
    path = f"/proc/self/task/{os.getpid()}/stat"
    first = files.read_if_any(path)
    with mmap(-1, 2**22) as fresh:  # memory from the heap may have been touched before
        fresh.write(bytes(2**22))
    assert first != files.read_if_any(path) != ""
    assert len(files) == 1


def test_what_went_away_is_empty_and_kept_no_longer(files: KeptFiles) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        path = f"/proc/{process.pid}/stat"
        assert files.read_if_any(path) != ""
    finally:
        process.kill()
        process.wait()
    assert files.read_if_any(path) == ""
    assert len(files) == 0


def test_where_the_kept_one_refuses_the_path_is_asked_again(
    files: KeptFiles, attribute: str
) -> None:
    """As after a driver was loaded anew: what was open is dead, and another has its name."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        link = Path(attribute).with_name("link")
        link.symlink_to(f"/proc/{process.pid}/stat")
        assert files.read_if_any(str(link)) != ""
    finally:
        process.kill()
        process.wait()
    link.unlink()
    link.symlink_to(attribute)
    assert files.read_if_any(str(link)) == "3\n"
    assert files.read_if_any(str(link)) == "3\n"


def test_what_never_was_there_or_can_not_be_read_is_empty(files: KeptFiles, tmp_path: Path) -> None:
    before = descriptors()
    assert files.read_if_any(str(tmp_path / "missing")) == ""
    assert files.read_if_any(str(tmp_path)) == ""
    assert (len(files), descriptors()) == (0, before)


def test_bytes_that_are_no_text_are_replaced(files: KeptFiles, attribute: str) -> None:
    Path(attribute).write_bytes(b"\xff7")
    assert files.read_if_any(attribute) == "�7"


def test_what_is_forgotten_is_closed_and_nothing_beside_it(
    files: KeptFiles, attribute: str, tmp_path: Path
) -> None:
    other = tmp_path / "ports/11/symbol_error"
    other.parent.mkdir()
    other.write_text("4\n")
    before = descriptors()
    files.read_if_any(attribute)
    files.read_if_any(str(other))
    files.forget(str(tmp_path / "ports/1"))
    assert len(files) == 1
    files.forget(str(tmp_path / "ports/11"))
    assert descriptors() == before


def test_whoever_drops_them_leaves_nothing_open(attribute: str) -> None:
    before = descriptors()
    files = KeptFiles()
    files.read_if_any(attribute)
    assert descriptors() != before
    del files
    assert descriptors() == before


def test_beyond_the_most_that_are_kept_files_are_read_all_the_same(
    attribute: str, tmp_path: Path
) -> None:
    files = KeptFiles(most=1)
    other = tmp_path / "other"
    other.write_text("4\n")
    assert [files.read_if_any(path) for path in (attribute, str(other))] == ["3\n", "4\n"]
    assert len(files) == 1
