"""How long nodes that are all there take to find each other: Holdfast's way and torch's c10d.

Nodes are threads of one process, which is the same for both. Holdfast's has a real Redis and a
real sidecar that leads; the clock runs from the moment all nodes ask until the last is answered.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.launch.child import run_child
from bench.launch.contestants import HOLDFAST, TORCHRUN
from bench.launch.job import shared_memory
from bench.launch.redis_server import RedisServer
from holdfast_sidecar.coordination.keys import Keys

LIMIT_S = 120.0
LEADER_LIMIT_S = 20.0
TIMES = 5
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
            **json.loads(run_child([*MEETING, "c10d", str(nodes)], LIMIT_S)),
        }
        for _ in range(TIMES)
    ]


CONTESTANTS: tuple[tuple[str, Callable[[int], list[Sample]]], ...] = (
    (HOLDFAST.name, measure_holdfast),
    (TORCHRUN.name, measure_torch),
)


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
        answer = run_child([*MEETING, "holdfast", str(nodes), server.url, job], LIMIT_S)
        return {"contestant": HOLDFAST.name, **json.loads(answer)}
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
