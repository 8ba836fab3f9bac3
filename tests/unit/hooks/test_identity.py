"""What a line of /proc/PID/stat says of a process."""

from __future__ import annotations

from holdfast.contract.identity import parse_stat, read_status

KILLED_4_GIB = (
    "22229 (python (1) x) R 22224 22224 9773 0 -1 4195334 262950 0 0 0 12 60 0 0 20 0 1 0 2646422"
    " 0 0 18446744073709551615 0 0 0 0 0 0 0 16781312 2 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 9"
)
"""Recorded while the kernel was freeing the memory of a process killed by SIGKILL."""

TRAINING = (
    "22229 (python) S 22224 22224 9773 0 -1 4194304 262950 0 0 0 12 60 0 0 20 0 1 0 2646422"
    " 4310000000 1057000 18446744073709551615 4321280 7098201 140720 0 0 0 0 16781312 2 0 0 0 17"
    " 1 0 0 0 0 0 9432800 10081824 24485888 140720 140720 140720 140720 0"
)


def test_a_process_that_is_being_cleared_away_says_so_and_how_it_ends() -> None:
    status = parse_stat(KILLED_4_GIB)
    assert (status.is_ending, status.is_killed, status.wait_status) == (True, False, 9)
    assert (status.state, status.start_ticks, status.cpu_ticks) == ("R", 2646422, 72)


def test_one_that_lives_does_not() -> None:
    status = parse_stat(TRAINING)
    assert (status.is_ending, status.is_killed, status.wait_status) == (False, False, 0)


def test_pages_read_from_storage_are_counted() -> None:
    fields = TRAINING.split()
    fields[11] = "17"
    assert (parse_stat(TRAINING).major_faults, parse_stat(" ".join(fields)).major_faults) == (0, 17)


def test_a_sigkill_that_waits_is_seen() -> None:
    fields = TRAINING.split()
    fields[30] = str(1 << 8)
    assert parse_stat(" ".join(fields)).is_killed


def test_a_fatal_signal_that_was_taken_is_the_end_even_before_the_core_is_dumped() -> None:
    fields = TRAINING.split()
    fields[8] = str(4194304 | 0x400)
    assert parse_stat(" ".join(fields)).is_ending


def test_this_process_lives() -> None:
    import os

    status = read_status(os.getpid())
    assert status is not None
    assert not status.is_ending
    assert not status.is_killed
