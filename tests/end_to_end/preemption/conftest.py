"""Jobs that a scheduler treats as its own: signals to all processes, deadlines, requeues."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

TRAINING = Path(__file__).with_name("training.py")

PATIENCE_S = 60.0
"""For a machine on which everything else runs as well; each wait takes seconds at most here."""

BRISK = ("--set=sidecar.tick_s=0.1", "--set=sidecar.heartbeat_s=0.1", "--set=sidecar.grace_s=2.5")


@dataclass
class Launch:
    """One `holdfast run`."""

    node: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.node} never ended:\n{self.output}") from None

    def processes(self) -> list[psutil.Process]:
        """All processes of this launch, itself included, as a scheduler signals them."""
        try:
            launcher = psutil.Process(self.process.pid)
            return [launcher, *launcher.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> list[psutil.Process]:
        """The processes that run the script, without what they started and what waits to run it."""
        found = [p for p in self.processes() if p.cmdline()[-1:] == [str(TRAINING)]]
        return [p for p in found if "-u" in p.cmdline()[:2] and p.ppid() == self.process.pid]

    def rank(self, number: int) -> psutil.Process:
        """The process of one rank."""
        (found,) = [p for p in self.ranks() if p.environ().get("RANK") == str(number)]
        return found

    def signal_all(self, number: signal.Signals = signal.SIGTERM) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@dataclass
class Scheduler:
    """Starts launches of one job and signals them."""

    folder: Path
    launches: list[Launch] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PET_", "SLURM_"))
        }
        return kept | {
            "OUT": str(self.out),
            "HOLDFAST_SET_PATHS_SHM_DIR": str(self.folder / "shm"),
            "HOLDFAST_SET_PATHS_STATE_DIR": str(self.folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

    def command(self, options: Sequence[str], node: str = "a", ranks: int = 2) -> list[str]:
        return [
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
            *("--job=job", f"--node={node}", f"--nproc-per-node={ranks}"),
            *(f"--checkpoint-dir={self.checkpoints}", *BRISK, *options, str(TRAINING)),
        ]

    def start(self, *options: str, node: str = "a", ranks: int = 2, **environment: str) -> Launch:
        return self.start_command(self.command(options, node, ranks), node, **environment)

    def start_command(self, command: Sequence[str], node: str = "a", **environment: str) -> Launch:
        log = self.folder / f"{node}-{len(self.launches)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | environment,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self.launches.append(Launch(node, process, log))
        return self.launches[-1]

    def steps(self, rank: int = 0) -> list[int]:
        """The steps that a rank has made, over all launches."""
        return [step for step, _ in self.samples(rank)]

    def samples(self, rank: int = 0) -> list[tuple[int, list[int]]]:
        path = self.out / f"samples-{rank}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [(step, batch) for step, batch in map(json.loads, lines)]

    def sealed(self) -> list[int]:
        """Steps of the checkpoints that exist."""
        return sorted(
            int(path.parent.name.split("-")[1]) for path in self.checkpoints.glob("*/manifest.json")
        )

    def await_steps(self, more: int, ranks: int = 2) -> None:
        before = {rank: len(self.steps(rank)) for rank in range(ranks)}
        self.await_that(
            lambda: all(len(self.steps(rank)) >= before[rank] + more for rank in before),
            f"{more} more steps",
        )

    def stick(self, rank: int) -> None:
        """Let this rank be stuck in C code from its next step on, in this attempt alone."""
        (self.out / f"stuck-{rank}").touch()
        self.await_that((self.out / f"is-stuck-{rank}").exists, f"rank {rank} is stuck")
        (self.out / f"stuck-{rank}").unlink()

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, f"never: {what}\n{self.story()}"
            time.sleep(0.03)

    def story(self) -> str:
        logs = [self.folder.glob("*.log"), self.folder.glob("state/**/sidecar.log")]
        return "\n".join(f"-- {p}:\n{p.read_text()[-5000:]}" for found in logs for p in found)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    pytest.importorskip("torch")
    folder = Path(tempfile.mkdtemp(prefix="hf-preempt-", dir="/tmp"))
    for name in ("out", "shm", "state", "checkpoints"):
        (folder / name).mkdir()
    made = Scheduler(folder)
    yield made
    for launch in made.launches:
        left = launch.processes()
        launch.process.kill()
        launch.process.wait()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    shutil.rmtree(folder, ignore_errors=True)
