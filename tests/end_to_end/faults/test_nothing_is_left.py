"""However a launch ends, nothing stays: no process, port, socket, or file in shared memory."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.end_to_end.faults.job import Job

from holdfast_sidecar.export.job_record import read_record

pytestmark = pytest.mark.torch

EVERY_HELPER = ["fork", "spawn", "command"]


def started(job: Job, ending: str, helpers: list[str]) -> list[int]:
    """A job alone on its node, with a server of its own; the pids of all that belongs to it."""
    job.start("a", ["--max-restarts=0"], ["worker", ending, *helpers])
    job.await_that(lambda: (job.out / "ready-0").exists(), "the rank started its helpers")
    job.await_that(lambda: job.sidecar("a") > 0, "a sidecar")
    titles = job.processes()
    assert any("redis" in title or "valkey" in title for title in titles.values()), titles
    assert len(titles) >= 4 + len(helpers), titles
    return list(titles)


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses on which these processes listen."""
    return {
        (found.laddr.ip, found.laddr.port)
        for found in psutil.net_connections("tcp")
        if found.pid in pids and found.status == psutil.CONN_LISTEN and found.laddr
    }


def assert_nothing_is_left(job: Job, pids: list[int], ports: set[tuple[str, int]]) -> None:
    job.await_that(lambda: not job.processes(), f"no process is left of {job.processes()}")
    assert not list(job.shm.rglob("*")), job.story()
    assert not {path for path in (job.folder).rglob("*") if path.is_socket()}
    still = {
        (c.laddr.ip, c.laddr.port)
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr
    }
    assert not ports & still
    assert left_in_dev_shm(pids) == []


def left_in_dev_shm(pids: list[int]) -> list[str]:
    """What torch's workers name after their pids."""
    names = [path.name for path in Path("/dev/shm").iterdir()]
    return [name for name in names if {int(n) for n in re.findall(r"\d+", name)} & set(pids)]


ENDINGS: dict[str, tuple[Callable[[Job], None], int]] = {
    "well": (lambda job: job.say("finish"), 0),
    "badly": (lambda job: job.say("finish"), 1),
    "SIGTERM": (lambda job: job.nodes["a"].process.send_signal(signal.SIGTERM), 1),
    "SIGINT": (lambda job: job.nodes["a"].process.send_signal(signal.SIGINT), 1),
    "SIGKILL": (lambda job: job.nodes["a"].process.kill(), -signal.SIGKILL),
}
"""How to bring each about, and the launcher's exit code."""


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_of_a_launch_that_ends(ending: str, make_job: Callable[..., Job]) -> None:
    job = make_job(None)
    pids = started(job, ending, EVERY_HELPER)
    ports = listening(pids)
    assert ports, "at least the attempt's store and the metrics page listen"
    end, code = ENDINGS[ending]
    end(job)
    assert job.nodes["a"].wait() == code, job.story()
    assert_nothing_is_left(job, pids, ports)
    known = read_record(job.folder / "state" / job.name)
    assert known is not None
    assert known[0].interrupted_by == (ending if ending in ("SIGTERM", "SIGINT") else "")
