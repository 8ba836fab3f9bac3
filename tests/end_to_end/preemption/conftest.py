"""Jobs that a scheduler treats as its own: signals to all processes, deadlines, requeues."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from tests.end_to_end.launcher import Launcher, await_that, surroundings

TRAINING = Path(__file__).with_name("training.py")

BRISK = ("--set=sidecar.tick_s=0.1", "--set=sidecar.heartbeat_s=0.1", "--set=sidecar.grace_s=2.5")


class Launch(Launcher):
    """One `holdfast run` of the script beside this file."""

    def ranks(self) -> list[psutil.Process]:
        """The processes that run the script, without what they started and what waits to run it."""
        found = [p for p in self.processes() if p.cmdline()[-1:] == [str(TRAINING)]]
        return [p for p in found if "-u" in p.cmdline()[:2] and p.ppid() == self.process.pid]

    def rank(self, number: int) -> psutil.Process:
        """The process of one rank."""
        (found,) = [p for p in self.ranks() if p.environ().get("RANK") == str(number)]
        return found


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
        return surroundings(self.folder)

    def command(self, options: Sequence[str], node: str = "a", ranks: int = 2) -> list[str]:
        return [
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
            *("--job=job", f"--node={node}", f"--nproc-per-node={ranks}"),
            *(f"--checkpoint-dir={self.checkpoints}", *BRISK, *options, str(TRAINING)),
        ]

    def start(self, *options: str, node: str = "a", ranks: int = 2, **environment: str) -> Launch:
        return self.start_command(self.command(options, node, ranks), node, **environment)

    def start_command(self, command: Sequence[str], node: str = "a", **environment: str) -> Launch:
        launch = Launch.start(node, command, self.folder, self.environment | environment)
        self.launches.append(launch)
        return launch

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
        await_that(is_so, what, self.story)

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
