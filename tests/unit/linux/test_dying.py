"""Which threads must be ending for a process to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.hooks.test_identity import KILLED_4_GIB, TRAINING

from holdfast.contract.identity import parse_stat
from holdfast_sidecar.linux.process import exit_code_of, is_back, read_is_dying

PID = 22229


def process(proc: Path, *threads: str) -> Path:
    """/proc/PID with these lines as its threads' stat, the first one's own first."""
    directory = proc / str(PID)
    for number, line in enumerate(threads):
        task = directory / "task" / str(PID + number)
        task.mkdir(parents=True)
        (task / "stat").write_text(line)
    return directory


def pending_kill(line: str) -> str:
    fields = line.split()
    fields[30] = str(1 << 8)
    return " ".join(fields)


def is_dying(directory: Path, first: str) -> bool:
    return read_is_dying(str(directory), parse_stat(first))


def test_a_process_ends_when_all_of_its_threads_do(tmp_path: Path) -> None:
    directory = process(tmp_path, KILLED_4_GIB, KILLED_4_GIB, pending_kill(TRAINING))
    assert is_dying(directory, KILLED_4_GIB)


def test_a_first_thread_that_leaves_the_others_behind_is_no_end(tmp_path: Path) -> None:
    """pthread_exit of the main thread, and an exec by another one, which takes its place."""
    assert not is_dying(process(tmp_path, KILLED_4_GIB, TRAINING), KILLED_4_GIB)


def test_a_thread_that_took_the_first_ones_place_meanwhile_goes_on(tmp_path: Path) -> None:
    """An exec by another thread, between the look at the first one and the look at all."""
    directory = process(tmp_path, TRAINING)
    (directory / "stat").write_text(TRAINING)
    assert not is_dying(directory, KILLED_4_GIB)


def test_an_end_that_was_told_too_soon_is_none() -> None:
    assert is_back(parse_stat(TRAINING))
    assert not is_back(parse_stat(KILLED_4_GIB))
    assert not is_back(parse_stat(TRAINING.replace(") S ", ") Z ")))


def test_a_process_whose_first_thread_lives_is_not_looked_into(tmp_path: Path) -> None:
    assert not is_dying(tmp_path / "nothing there", TRAINING)


def test_one_that_is_cleared_away_meanwhile_has_ended(tmp_path: Path) -> None:
    assert is_dying(tmp_path / "nothing there", KILLED_4_GIB)


@pytest.mark.parametrize("status", [0, 3 << 8, 9, 6 | 0x80])
def test_an_exit_code_is_what_wait_would_say(status: int) -> None:
    assert exit_code_of(status) == os.waitstatus_to_exitcode(status & ~0x80)
