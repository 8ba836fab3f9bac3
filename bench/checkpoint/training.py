"""A training under `holdfast run`: nodes of this machine, told apart by marks, and always ended."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.benchmark import NotRun
from bench.checkpoint.telling import OUT, read_lines
from bench.launch.job import shared_memory
from bench.launch.processes import NODE_MARK, RUN_MARK, Launched, kill_marked
from bench.launch.redis_server import RedisServer
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Request
from holdfast_sidecar.store.protocol import Section
from holdfast_sidecar.store.redis_store import RedisStore

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LOOK_S = 0.02

STRAY = ("HOLDFAST_", "TORCH", "PYTHON")
"""Variables of whoever started the benchmark that would change what is measured."""

TIRELESS = (
    "--set=policy.budget=1000",
    "--set=policy.blames_limit=1000",
    "--set=policy.stuck_limit=1000",
)
"""Ranks are killed more often here than a job should put up with, and always on the same node."""

BRISK = ("--set=policy.backoff_s=0.1", "--set=policy.backoff_limit_s=0.1")
"""Pauses between many restarts would only make it longer."""


class Training:
    """A context: leaving it kills everything that was started and removes its files."""

    def __init__(self) -> None:
        self.run = f"bench-{uuid.uuid4().hex[:12]}"
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self.out = self.directory / "out"
        self.checkpoints = self.directory / "checkpoints"
        self.launched: dict[str, Launched] = {}
        self._server: RedisServer | None = None

    def __enter__(self) -> Training:
        try:
            self.out.mkdir()
            self._server = RedisServer(self.directory)
        except NotRun:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kill_marked(self.run)
        for launched in self.launched.values():
            launched.process.wait(timeout=10)
        assert self._server is not None
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(shared_memory(self.run), ignore_errors=True)

    @property
    def url(self) -> str:
        """Where the job's Redis is."""
        assert self._server is not None
        return self._server.url

    def start(
        self, node: str, program: str, *arguments: object, options: Sequence[str] = (), ranks: int
    ) -> None:
        """Start a node; the program is one of `programs/`."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(STRAY)}
        environment = {
            **kept,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(self.directory / "state"),
            OUT: str(self.out),
            RUN_MARK: self.run,
            NODE_MARK: node,
        }
        command = [
            *(str(Path(sys.executable).with_name("holdfast")), "run"),
            *(f"--job={self.run}", f"--node={node}", f"--redis={self.url}"),
            *(f"--checkpoint-dir={self.checkpoints}", f"--nproc-per-node={ranks}"),
            *(*BRISK, *options, str(PROGRAMS / program), *map(str, arguments)),
        ]
        self.launched[node] = Launched(command, environment, self.directory)

    def lose(self, node: str) -> None:
        """SIGKILL everything of a node."""
        kill_marked(self.run, node)

    def lines(self) -> list[dict[str, Any]]:
        """What the ranks said so far."""
        return read_lines(self.out)

    def wait_for(
        self, reached: Callable[[list[dict[str, Any]]], bool], within_s: float, what: str
    ) -> list[dict[str, Any]]:
        """Look until the lines say so; NotRun when they never do."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            lines = self.lines()
            if reached(lines):
                return lines
            if all(launched.process.poll() is not None for launched in self.launched.values()):
                break
            time.sleep(LOOK_S)
        self.tell_last_lines()
        raise NotRun(f"{what}: not within {within_s:g} s")

    def tell_last_lines(self) -> None:
        """For whoever looks on; results hold no output, which may name hosts and paths."""
        for node, launched in self.launched.items():
            for line in launched.tail(20):
                print(f"  node {node}: {line}", file=sys.stderr)

    def metrics_addresses(self) -> list[str]:
        """Where this job's sidecars are asked for their metrics."""
        state = self.directory / "state" / "holdfast" / self.run
        records = [json.loads(path.read_text()) for path in state.glob("*/sidecar.json")]
        return [record["metrics_address"] for record in records if record["metrics_address"]]

    def nodes_in_use(self) -> list[str]:
        """Those that run ranks: spares are held outside until they are needed."""
        return sorted({page.parent.name for page in shared_memory(self.run).glob("*/*.page")})

    def request_checkpoint(self) -> None:
        """Ask the leader for one, as `holdfast checkpoint now` does."""
        assert self._server is not None
        identifier = uuid.uuid4().hex[:12]
        request = Request(identifier, "checkpoint", "bench", time.time())
        store = RedisStore(self._server.client(), self.run)
        store.report(Section.REQUESTS, identifier, encode(request))


def through(lines: Sequence[dict[str, Any]]) -> bool:
    """Whether every rank that ever spoke said that it is done."""
    ranks = {line["rank"] for line in lines}
    return bool(ranks) and {line["rank"] for line in lines if line.get("done")} == ranks
