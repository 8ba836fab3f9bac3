"""What an odd job is, and one run of it, with Holdfast or without."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from bench.benchmark import NotRun
from bench.harmless.outcome import Outcome, Timing
from bench.launch.contestants import STRAY
from bench.launch.job import free_port
from bench.launch.processes import NODE_MARK, RUN_MARK, Launched, kill_marked, read_marked

SCRIPTS = Path(__file__).with_name("scripts")
FOREIGN = "somebodys-notes.txt"
LOOK_S = 0.05
HURRIED_S = 1.0
"""How long the odd part lasts in a plain twin that nothing is done to: its results don't depend
on that."""

NODES = "abc"


def nothing(run: Run) -> None:
    """Nothing is around it, or is done to it."""
    del run


@dataclass(frozen=True)
class Job:
    """A healthy job that is odd in one way."""

    name: str
    row: str
    script: tuple[str, ...]
    """A file of `scripts/` and what of it."""
    ranks: int = 2
    nodes: int = 1
    spares: int = 0
    """Further nodes, under Holdfast alone."""
    odd_s: float = 8.0
    limit_s: float = 150.0
    options: tuple[str, ...] = ()
    """Of `holdfast run` alone."""
    environment: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    before: Callable[[Run], None] = nothing
    """Before the start: what is around it. Cleanups go to `run.stack`."""
    during: Callable[[Run], None] = nothing
    """While it runs: what is done to it from outside. NotRun when that had no effect."""
    is_shared: bool = False
    """Whether the plain twin goes through `before` and `during` as well."""
    starts: int = 1
    """How often each rank starts; more where `during` kills one."""
    starts_anew: bool = False
    """After a kill: from step 0, because what it names can't be restored."""
    may_refuse: bool = False
    """Exit code 2 and one line, before any rank was started, are as good as running."""
    runs: int = 2

    def undisturbed(self) -> Job:
        """What it computes, by the shortest way: the same for all jobs that do the same work."""
        hurried = {"ODD_STEP_SECONDS": "0"}
        return Job(
            name="undisturbed",
            row="",
            script=self.script,
            ranks=self.ranks,
            nodes=self.nodes,
            odd_s=min(self.odd_s, HURRIED_S),
            environment=tuple(sorted({**dict(self.environment), **hurried}.items())),
        )


@dataclass
class Run:
    """One launch of a job. A context: leaving it ends and removes all that it made."""

    job: Job
    seed: int
    is_held: bool
    """Under Holdfast, rather than under torchrun."""
    stack: ExitStack = field(default_factory=ExitStack)
    mark: str = field(default_factory=lambda: f"odd-{uuid.uuid4().hex[:10]}")
    prefix: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    redis: dict[str, str] = field(default_factory=dict)
    """Node -> URL, where there are several."""
    launched: dict[str, Launched] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Why it was not disturbed as it should have been."""
    seen: list[str] = field(default_factory=list)
    """Harm that whoever disturbed it saw."""
    foreign: dict[Path, bytes] = field(default_factory=dict)
    """Files that are not ours, with their contents: they must be as they were."""
    ways: Any = None
    """To the Redis of a job on several nodes (`redis_ways.Ways`)."""
    store: Any = None
    """Of objects, for the checkpoints (`object_store.Ailing`)."""

    def __enter__(self) -> Run:
        self.directory = Path(tempfile.mkdtemp(prefix="hf-odd-", dir="/tmp"))
        self.stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.chance = random.Random(f"{self.job.name}/{self.seed}")
        for name in ("out", "state", "checkpoints"):
            (self.directory / name).mkdir()
        self.stack.callback(kill_marked, self.mark)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stack.close()

    @property
    def out(self) -> Path:
        """Where its ranks write."""
        return self.directory / "out"

    @property
    def checkpoints(self) -> Path:
        """Where Holdfast saves, for jobs that do."""
        return self.directory / "checkpoints"

    def measure(self) -> Outcome:
        """Start it, disturb it, wait for its end, and see what came of it."""
        for program in self.job.needs:
            if shutil.which(program) is None:
                raise NotRun(f"{program} is not installed")
        self.job.before(self)
        for name in (".", "state", "checkpoints"):
            self.plant(name)
        port = free_port()
        spares = self.job.spares if self.is_held else 0
        for node in NODES[: self.job.nodes + spares]:
            self.launched[node] = Launched(
                [*self.prefix, *self._command(node, port)], self.environment(node), self.directory
            )
        try:
            self.job.during(self)
        except NotRun as reason:
            self.notes.append(str(reason))
        return self._outcome()

    def plant(self, name: str) -> None:
        """Somebody's file in this directory of the run; not where there is no room for it."""
        path = self.directory / name / FOREIGN
        content = f"somebody's notes in {name}\n".encode() * 20
        try:
            path.write_bytes(content)
        except OSError:
            path.unlink(missing_ok=True)
            return
        self.foreign[path] = content

    def await_steps(self, steps: int = 5) -> None:
        """Until every rank has made so many; NotRun when the launch ends or it takes too long."""
        end_s = time.monotonic() + self.job.limit_s
        ranks = range(self.job.ranks * self.job.nodes)
        while time.monotonic() < end_s and not self.is_over():
            if all(_number(self.out / f"step-{rank}") >= steps for rank in ranks):
                return
            time.sleep(LOOK_S)
        raise NotRun(f"never made {steps} steps")

    def is_over(self) -> bool:
        """Whether a launcher has ended."""
        return any(one.process.poll() is not None for one in self.launched.values())

    def must_run_still(self) -> None:
        """NotRun when what is done to it outlasted it."""
        results = [self.out / f"result-{n}.json" for n in range(self.job.ranks * self.job.nodes)]
        if self.is_over() or any(result.exists() for result in results):
            raise NotRun("it ended before what was done to it")

    def rank_pid(self, rank: int) -> int:
        """The process that started last as this rank."""
        return int((self.out / f"starts-{rank}").read_text().split()[-1])

    def pids(self, node: str | None = None) -> list[int]:
        """All processes of this launch, sidecars included."""
        return read_marked(self.mark, node)

    def sidecar_pids(self, node: str | None = None) -> list[int]:
        """The sidecars alone."""
        found = []
        for pid in self.pids(node):
            try:
                words = psutil.Process(pid).cmdline()
            except psutil.NoSuchProcess:
                continue
            if "sidecar" in words and "holdfast_sidecar" in " ".join(words):
                found.append(pid)
        return found

    def training(self) -> list[str]:
        """The script and its arguments."""
        file, *what = self.job.script
        return [str(SCRIPTS / file), *what]

    def _command(self, node: str, port: int) -> list[str]:
        training = self.training()
        nodes = [f"--nnodes={self.job.nodes}", f"--nproc-per-node={self.job.ranks}"]
        if not self.is_held:
            if self.job.nodes > 1:
                nodes += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
                nodes += [f"--rdzv-conf=is_host={int(node == 'a')}", f"--rdzv-id={self.mark}"]
            else:
                nodes += ["--standalone"]
            return [sys.executable, "-m", "torch.distributed.run", *nodes, *training]
        command = [str(Path(sys.executable).with_name("holdfast")), "run", *nodes]
        if self.job.spares:
            command += [f"--spares={self.job.spares}"]
        if self.redis:
            command += [f"--node={node}", f"--job={self.mark}", f"--redis={self.redis[node]}"]
        options = [
            word.replace("{checkpoints}", str(self.checkpoints)) for word in self.job.options
        ]
        return [*command, *options, *self.options, *training]

    def environment(self, node: str) -> dict[str, str]:
        """Of this node's launcher."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(STRAY)}
        own = {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(self.directory / "state"),
            "ODD_OUT": str(self.out),
            "ODD_SECONDS": str(self.job.odd_s),
            RUN_MARK: self.mark,
            NODE_MARK: node,
        }
        return {**kept, **own, **dict(self.job.environment), **self.more}

    def _outcome(self) -> Outcome:
        end_s = time.monotonic() + self.job.limit_s
        codes: dict[str, int | None] = {}
        for node, launched in self.launched.items():
            while launched.process.poll() is None and time.monotonic() < end_s:
                time.sleep(LOOK_S)
            codes[node] = launched.process.poll()
        ranks = range(self.job.ranks * self.job.nodes)
        results = {str(rank): _read(self.out / f"result-{rank}.json") for rank in ranks}
        seconds = [result.pop("seconds", 0.0) for result in results.values() if result]
        first_s = [result.pop("first_s", 0.0) for result in results.values() if result]
        pieces_s = [result.pop("piece_s", None) for result in results.values() if result]
        return Outcome(
            codes=codes,
            starts={str(rank): len(_numbers(self.out / f"starts-{rank}")) for rank in ranks},
            results=results,
            timing=Timing(
                max(seconds, default=0.0),
                [one for one in pieces_s if one],
                max(first_s, default=0.0),
            ),
            resumed={str(rank): _numbers(self.out / f"resumed-{rank}") for rank in ranks},
            seen=list(self.seen),
            lost=[
                str(path.relative_to(self.directory))
                for path, content in self.foreign.items()
                if not _is_as_it_was(path, content)
            ],
            notes=list(self.notes),
            tail=[line for launched in self.launched.values() for line in launched.tail(12)],
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_as_it_was(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _numbers(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except FileNotFoundError:
        return []


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or -1)
    except (FileNotFoundError, ValueError):
        return -1
