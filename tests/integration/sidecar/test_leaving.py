"""How a sidecar outlives its launcher, and what it clears up."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.integration.sidecar.node import Node, wait_for


def worker_of(pid: int) -> int:
    return int(wait_for(Path(f"/proc/{pid}/task/{pid}/children").read_text).split()[0])


def exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_after_the_launchers_death_it_reports_sweeps_and_leaves(node: Node) -> None:
    launcher = node.launcher()
    rank = node.rank("--with-worker")
    sidecar = node.sidecar("--launcher-pid", str(launcher.pid), "--set", "sidecar.grace_s=2.5")
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].step > 3)
    worker = worker_of(rank.pid)
    launcher.kill()
    launcher.wait()
    wait_for(lambda: (r := node.report()) and not r.launcher_alive)
    assert [f.ranks for f in node.findings("launcher_lost")] == [[]]
    rank.kill()
    rank.wait()
    wait_for(lambda: not exists(worker))
    assert sidecar.wait(15) == 0
    assert not node.places.shm.exists()
    assert not node.places.sidecar_record.exists()


def test_workers_of_a_living_rank_are_left_alone(node: Node) -> None:
    launcher = node.launcher()
    rank = node.rank("--with-worker")
    sidecar = node.sidecar("--launcher-pid", str(launcher.pid), "--set", "sidecar.grace_s=2.5")
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].step > 3)
    worker = worker_of(rank.pid)
    launcher.kill()
    launcher.wait()
    assert sidecar.wait(15) == 0
    assert rank.poll() is None
    assert exists(worker)
    assert list(node.places.shm.glob("*.page"))
    os.kill(worker, signal.SIGKILL)


def test_a_sidecar_that_is_told_to_leave_does_so_even_while_redis_is_away(node: Node) -> None:
    sidecar = node.sidecar()
    wait_for(node.report)
    node.server.kill()
    time.sleep(0.5)
    sidecar.terminate()
    assert sidecar.wait(10) == 0


def test_a_sidecar_without_launcher_waits_for_ranks_and_stays_after_them(node: Node) -> None:
    sidecar = node.sidecar()
    assert wait_for(node.report).attempt == -1
    rank = node.rank("--steps=20")
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].ending == 1)
    rank.wait(10)
    assert sidecar.poll() is None
