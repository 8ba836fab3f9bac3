"""A node that cannot reach Redis for a while, in real jobs: its ranks and the others train on."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.faults.job import Job

from holdfast_sidecar.config.addresses import parse_address
from holdfast_sidecar.config.settings import RedisSettings

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

BLOCK = 2**16


class Way:
    """One node's way to the server: a port that leads there, unless it is cut."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._is_open = threading.Event()
        self._is_open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._is_open.clear()

    def mend(self) -> None:
        """What waited passes, and all else."""
        self._is_open.set()

    def close(self) -> None:
        self.mend()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=[near], daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._is_open.wait()
        with suppress(OSError), near, socket.create_connection(self._to) as far:
            back = threading.Thread(target=self._carry, args=[far, near], daemon=True)
            back.start()
            self._carry(near, far)
            back.join()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while block := source.recv(BLOCK):
                self._is_open.wait()
                target.sendall(block)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@dataclass
class CutJob:
    """Two nodes, each with its own way to the server, while a test looks in directly."""

    job: Job
    ways: dict[str, Way]

    def start(self, options: Sequence[str] = ("--nnodes=2",)) -> None:
        for node, way in self.ways.items():
            server = self.job.server
            self.job.server = servers.Server((), RedisSettings(url=way.url), Path("/"))
            self.job.start(node, list(options), ["endless"])
            self.job.server = server

    def follower(self) -> str:
        leader = self.job.lease().candidate.partition("/")[0]
        return next(node for node in self.ways if node != leader)


@pytest.fixture
def cut_job(make_job: Callable[..., Job]) -> Iterator[CutJob]:
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    with ExitStack() as cleaning:
        cleaning.callback(shutil.rmtree, folder, ignore_errors=True)
        server = servers.plain_on_port(folder).start()
        cleaning.callback(server.kill)
        (address,) = parse_address(server.settings.url).hosts
        ways = {node: Way(address) for node in "ab"}
        for way in ways.values():
            cleaning.callback(way.close)
        yield CutJob(make_job(server), ways)


@pytest.mark.parametrize(("who", "seconds"), [("follower", 2.0), ("leader", 2.0), ("follower", 10)])
def test_a_node_that_cannot_reach_redis_trains_on(
    cut_job: CutJob, who: str, seconds: float
) -> None:
    job = cut_job.job
    cut_job.start()
    before = job.await_stepping(2)
    job.await_steps(50)
    follower = cut_job.follower()
    node = follower if who == "follower" else next(n for n in cut_job.ways if n != follower)
    cut_job.ways[node].cut()
    time.sleep(seconds)
    job.await_steps(20)
    cut_job.ways[node].mend()
    time.sleep(3.0)
    after = job.await_steps(50)
    assert {rank.pid for rank in after.values()} == {rank.pid for rank in before.values()}
    assert job.incidents() == [], job.story()
    plan = job.plan()
    assert plan is not None
    assert (plan.attempt, plan.state) == (0, "running")
    logs = "".join(job.sidecar_log(one) for one in cut_job.ways)
    assert "found sidecar_lost" in logs
    assert "found node_lost" not in logs
    job.finish()
