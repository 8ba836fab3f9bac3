from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast_sidecar.launcher.rank_state import (
    RankEnd,
    forgive,
    in_order,
    own_ends,
    read_exit_code,
)


def end(local_rank: int, exit_code: int, at: float = 10.0) -> RankEnd:
    return RankEnd(local_rank, 100 + local_rank, exit_code, at)


def test_the_rank_that_a_signal_ended_comes_before_its_peers_exceptions() -> None:
    ends = [end(0, 1), end(1, 1), end(2, -9)]
    assert [e.local_rank for e in in_order(ends, {0: 8.0, 1: 7.0})] == [2, 1, 0]


def test_a_clean_end_in_the_same_look_is_placed_by_its_time() -> None:
    assert [e.local_rank for e in in_order([end(0, 0), end(1, 1)], {1: 5.0})] == [1, 0]


@pytest.mark.parametrize(
    ("code", "finished", "expected"),
    [(-signal.SIGABRT, True, 0), (-signal.SIGABRT, False, -6), (-9, True, -9), (1, True, 1)],
)
def test_only_the_abort_of_a_finished_rank_is_forgiven(
    code: int, finished: bool, expected: int
) -> None:
    assert forgive(code, finished) == expected


@pytest.mark.parametrize(
    ("program", "expected"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_an_exit_code_is_read_without_reaping(program: str, expected: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", program])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert read_exit_code(child.pid) == expected
    assert read_exit_code(child.pid) == expected
    assert child.wait() == expected


def test_a_living_child_has_no_exit_code_and_a_reaped_one_counts_as_failed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert read_exit_code(child.pid) is None
    child.kill()
    child.communicate()
    assert read_exit_code(child.pid) == 1


def test_ends_that_had_begun_before_the_ranks_were_ended_are_their_own() -> None:
    own = own_ends([end(0, -6), end(1, -15), end(2, -15), end(3, 3)], {0}, {0, 2, 3})
    assert [(one.local_rank, one.exit_code) for one in own] == [(0, -6), (2, 0), (3, 3)]
