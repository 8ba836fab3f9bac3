"""How long nodes that are all there take to find each other: Holdfast's way and torch's c10d.

Nodes are threads, spread over as many processes as there are cores; the same for both. Holdfast's
has a real Redis and a real sidecar that leads. The clock runs from the moment at which all nodes
ask until the last is answered.
"""

from __future__ import annotations

import itertools
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.launch.child import ROOT
from bench.launch.contestants import HOLDFAST, TORCHRUN
from bench.launch.job import free_port, shared_memory
from bench.launch.redis_server import RedisServer
from holdfast_sidecar.store.protocol import Keys

LIMIT_S = 90.0
LEADER_LIMIT_S = 20.0
TIMES = 5
RESOLVER = "use-vc"
"""resolv.conf(5): ask over TCP. torch looks up the name of each address it connects to. 64 nodes
on one host put 64 such questions to one resolver at once, and what that drops over UDP is asked
again only after 5 s."""
SETTLE_S = 1.0
"""From the last node being opened to the common moment: start-up must not count."""
MEETING = [sys.executable, "-m", "bench.launch.meeting"]


def measure_holdfast(nodes: int) -> list[Sample]:
    """Fresh jobs, one after the other."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        server = RedisServer(Path(directory))
        try:
            for _ in range(TIMES):
                samples.append(_meet_under_a_sidecar(nodes, server, Path(directory)))
        finally:
            server.stop()
    return samples


def measure_torch(nodes: int) -> list[Sample]:
    """torch's dynamic rendezvous on the c10d store, as torchrun uses it."""
    return [
        {
            "contestant": TORCHRUN.name,
            "milliseconds": let_meet("c10d", nodes, str(free_port())),
        }
        for _ in range(TIMES)
    ]


CONTESTANTS: tuple[tuple[str, Callable[[int], list[Sample]]], ...] = (
    (HOLDFAST.name, measure_holdfast),
    (TORCHRUN.name, measure_torch),
)


def let_meet(kind: str, nodes: int, *where: str) -> float:
    """Milliseconds from a common moment until the last node has its place."""
    processes = min(nodes, len(os.sched_getaffinity(0)))
    borders = [nodes * number // processes for number in range(processes + 1)]
    children: list[subprocess.Popen[str]] = []
    try:
        for first, last in itertools.pairwise(borders):
            command = [*MEETING, kind, str(first), str(last), str(nodes), *where]
            children.append(_open(command))
            _line(children[-1])  # one after the other: the first one serves torch's store
        at_ns = time.monotonic_ns() + round(SETTLE_S * 1e9)
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"{at_ns}\n")
            child.stdin.flush()
        return (max(int(_line(child)) for child in children) - at_ns) / 1e6
    finally:
        for child in children:
            child.kill()
            child.wait(timeout=10)


def _open(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "RES_OPTIONS": RESOLVER},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(child: subprocess.Popen[str]) -> str:
    """Its next line; NotRun when it ends or says nothing for too long."""
    assert child.stdout is not None
    readable, _, _ = select.select([child.stdout], [], [], LIMIT_S)
    line = child.stdout.readline() if readable else ""
    if not line:
        raise NotRun("the nodes did not find each other")
    return line


def _meet_under_a_sidecar(nodes: int, server: RedisServer, directory: Path) -> Sample:
    job = f"bench-{uuid.uuid4().hex[:12]}"
    command = [str(Path(sys.executable).with_name("holdfast")), "sidecar"]
    sidecar = subprocess.Popen(
        [*command, f"--job={job}", "--node=leader", f"--redis={server.url}"],
        env={**os.environ, "XDG_STATE_HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for_leader(server, job)
        milliseconds = let_meet("holdfast", nodes, server.url, job)
        return {"contestant": HOLDFAST.name, "milliseconds": milliseconds}
    finally:
        sidecar.kill()
        sidecar.wait(timeout=10)
        shutil.rmtree(shared_memory(job), ignore_errors=True)


def _wait_for_leader(server: RedisServer, job: str) -> None:
    client = server.client()
    deadline = time.monotonic() + LEADER_LIMIT_S
    while time.monotonic() < deadline:
        if client.exists(Keys(job).leader):
            return
        time.sleep(0.02)
    raise NotRun(f"no sidecar led the job within {LEADER_LIMIT_S:g} s")
