"""Ranks that ended by themselves just before their attempt was ended for all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from holdfast_sidecar.launcher.rank_process import LocalRanks
from holdfast_sidecar.launcher.shutdown import wait_for_exit

pytestmark = pytest.mark.torch


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Local rank 0 ended with code 7 and is not waited for, 1 was killed, 2 lives."""
    ended = subprocess.Popen(["sh", "-c", "exit 7"])
    killed, living = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    killed.kill()
    assert wait_for_exit([ended.pid, killed.pid], 10)
    yield [ended, killed, living]
    living.kill()
    for process in (ended, killed, living):
        process.wait()


def ranks_of(processes: list[subprocess.Popen[bytes]]) -> LocalRanks:
    handlers = {rank: SimpleNamespace(proc=process) for rank, process in enumerate(processes)}
    context: Any = SimpleNamespace(
        pids=lambda: {rank: process.pid for rank, process in enumerate(processes)},
        subprocess_handlers=handlers,
    )
    return LocalRanks(context)


def test_who_ended_by_itself_is_told_from_who_lives(processes) -> None:
    assert ranks_of(processes).read_dying() == {0, 1}


def test_how_it_ended_is_known_before_and_after_it_was_waited_for(processes) -> None:
    ranks = ranks_of(processes)
    assert ranks.read_exit_codes() == {0: 7, 1: -9}
    for process in processes[:2]:
        process.wait()
    assert ranks.read_exit_codes() == {0: 7, 1: -9}
    assert ranks.read_dying() == set()
