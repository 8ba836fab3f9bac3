"""The Redis of an odd job on several nodes, and each node's way to it, which can be cut."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.benchmark import NotRun
from bench.harmless.disturbing import Step, stop_all
from bench.harmless.job import NODES, Run
from bench.launch.records import read_is_joining
from bench.launch.redis_server import RedisServer
from holdfast_sidecar.store.redis_store import RedisStore

JOIN_LIMIT_S = 60.0

HEARD_S = 6.0
"""Within so long every node is asked once whether it lives: only then its silence means much."""


class Way:
    """A node's own way to Redis, which can be cut: what is sent then is kept back, as by a switch
    that is down, and arrives when the way is mended."""

    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self.kept = 0
        """Messages that were kept back so far."""
        self._open = threading.Event()
        self._open.set()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Nothing passes from now on."""
        self._open.clear()

    def mend(self) -> None:
        """Everything passes again."""
        self._open.set()

    def close(self) -> None:
        """For good."""
        self._closing.set()
        self._open.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._open.wait()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self._target)
        except OSError:
            near.close()
            return
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self.kept += not self._open.is_set()
                self._open.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Ways:
    """A Redis and each node's way to it."""

    def __init__(self, run: Run) -> None:
        self._directory = run.directory
        self.server = RedisServer(run.directory)
        run.stack.callback(lambda: self.server.stop())
        self.of = {node: Way(self.server.socket) for node in NODES}
        for way in self.of.values():
            run.stack.callback(way.close)
        run.redis.update({node: f"redis://127.0.0.1:{way.port}" for node, way in self.of.items()})

    def leader(self, run: Run) -> str:
        """The node that leads."""
        store = RedisStore(self.server.client(), run.mark)
        found = store.read().lease.candidate.partition("/")[0]
        if found not in self.of:
            raise NotRun("nobody leads")
        return found

    def await_joining(self, run: Run, node: str) -> None:
        """Until this node waits for a place."""
        end_s = time.monotonic() + JOIN_LIMIT_S
        while not read_is_joining(self.server, run.mark, node):
            if time.monotonic() > end_s or run.is_over():
                raise NotRun(f"node {node} was not ready as a spare")
            time.sleep(0.05)

    def start_again(self) -> None:
        """Another server, empty, in the place of the one that was stopped."""
        self.server = RedisServer(self._directory)


def with_redis(run: Run) -> None:
    """A server that all nodes share."""
    run.ways = Ways(run)


def cut_off(who: str, seconds: float) -> Step:
    """`who`: one, some, all, leader. Redis is out of reach for so long."""

    def during(run: Run) -> None:
        run.await_steps()
        ways: Ways = run.ways
        nodes = NODES[: run.job.nodes + run.job.spares]
        for spare in nodes[run.job.nodes :]:
            ways.await_joining(run, spare)
        chosen: dict[str, Callable[[], list[str]]] = {
            "all": lambda: list(nodes),
            "some": lambda: run.chance.sample(nodes, len(nodes) - 1),
            "leader": lambda: [ways.leader(run)],
            "one": lambda: [run.chance.choice(nodes[: run.job.nodes])],
        }
        cut = [ways.of[node] for node in chosen[who]()]
        for way in cut:
            way.cut()
        time.sleep(seconds)
        kept = [way.kept for way in cut]
        for way in cut:
            way.mend()
        if not all(kept):
            raise NotRun("nobody asked Redis for anything meanwhile")
        run.must_run_still()

    return during


def node_unheard(seconds: float) -> Step:
    """Neither heartbeats nor answers to round trips come from a node, as when the one link of both
    is down; its ranks train on. Its launcher and sidecar are stopped for that: UDP on loopback
    can't be cut."""

    def during(run: Run) -> None:
        run.await_steps()
        ways: Ways = run.ways
        for spare in NODES[run.job.nodes : run.job.nodes + run.job.spares]:
            ways.await_joining(run, spare)
        time.sleep(HEARD_S)
        members = NODES[: run.job.nodes]
        node = run.chance.choice(members)
        stop_all([run.launched[node].process.pid, *run.sidecar_pids(node)], seconds)
        run.must_run_still()

    return during


def redis_stands_still(seconds: float) -> Step:
    def during(run: Run) -> None:
        run.await_steps()
        stop_all([run.ways.server.process.pid], seconds)
        run.must_run_still()

    return during


def redis_refuses(seconds: float) -> Step:
    """The server is killed; another one, which knows nothing, is started so much later."""

    def during(run: Run) -> None:
        run.await_steps()
        ways: Ways = run.ways
        ways.server.stop()
        if ways.server.process.returncode != -signal.SIGKILL:
            raise NotRun("the server was gone before it was killed")
        time.sleep(seconds)
        ways.start_again()
        run.must_run_still()

    return during


def redis_forgets(run: Run) -> None:
    """All keys are gone at once, as after a restart without a disk."""
    run.await_steps()
    client = run.ways.server.client()
    if not client.dbsize():
        raise NotRun("it knew nothing")
    client.flushall()
    run.must_run_still()
