"""What multiprocessing keeps in /dev/shm goes with the ranks that made it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.contract.identity import read_identity
from holdfast_sidecar.launcher.shutdown import end_ranks
from holdfast_sidecar.ranks.ending import end_leftovers, find_leftovers, read_statuses

SPAWNING = """
import multiprocessing, sys, time
def work(lock):
    with lock:
        time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()
    worker = context.Process(target=work, args=(lock,))
    worker.start()
    lock.acquire(timeout=0.01)
    print(lock._semlock.name, worker.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def rank(tmp_path: Path) -> subprocess.Popen[str]:
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def semaphore_of(rank: subprocess.Popen[str]) -> Path:
    assert rank.stdout is not None
    name, _ = rank.stdout.readline().split()
    path = Path("/dev/shm") / f"sem.{name.lstrip('/')}"
    assert path.exists()
    return path


def test_ending_a_rank_lets_its_resource_tracker_clear_up(rank: subprocess.Popen[str]) -> None:
    semaphore = semaphore_of(rank)
    end_ranks([rank.pid], signal.SIGTERM, grace_s=5)
    rank.wait()
    assert not semaphore.exists()


def test_sweeping_after_a_killed_launcher_lets_it_clear_up_too(
    rank: subprocess.Popen[str],
) -> None:
    semaphore = semaphore_of(rank)
    identity = read_identity(rank.pid)
    assert identity is not None
    os.kill(rank.pid, signal.SIGKILL)
    rank.wait()
    assert end_leftovers(find_leftovers(read_statuses(), [identity]))
    until = time.monotonic() + 5
    while find_leftovers(read_statuses(), [identity]) and time.monotonic() < until:
        time.sleep(0.01)
    assert not semaphore.exists()
