"""A real job of several nodes on this machine, watched through its pages and treated badly."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.end_to_end.launcher import PATIENCE_S, Launcher, await_that, surroundings
from tests.servers import Server

from holdfast.contract.page import Word, parse_words
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.ranks.page import open_page
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.protocol import Lease, Section

TRAINING = Path(__file__).with_name("training.py")

SOAK_SEEDS = range(int(os.environ.get("HOLDFAST_SOAK_SEEDS", "20")))

BRISK = (
    "--set=policy.backoff_s=0.1",
    "--set=policy.backoff_limit_s=0.1",
    "--set=policy.budget=1000",
    "--set=sidecar.grace_s=2.5",
)
"""Tests kill more often than a job should put up with, and don't wait for a grace."""

CLOSE_ORDERS = ("--set=sidecar.tick_s=0.1", "--set=sidecar.heartbeat_s=0.1")
"""A checkpoint is armed as far ahead as hearing of it may take: 0.4 s with these."""


@dataclass(frozen=True)
class Rank:
    """A rank as its page shows it."""

    rank: int
    node: str
    pid: int
    attempt: int
    step: int


@dataclass
class Job:
    """One job: its nodes, its files, and what can be seen of it."""

    name: str
    folder: Path
    server: Server | None
    nodes: dict[str, Launcher] = field(default_factory=dict)
    keeps_warm: bool = False
    """Whether its launchers keep warm interpreters, as they do by themselves."""

    @property
    def out(self) -> Path:
        """What ranks said."""
        return self.folder / "out"

    @property
    def shm(self) -> Path:
        """In the place of /dev/shm."""
        return self.folder / "shm"

    def start(self, node: str, options: Sequence[str], life: Sequence[str]) -> Launcher:
        """Start a node; `life` is what the ranks do, see training.py."""
        redis = [] if self.server is None else [f"--redis={self.server.settings.url}"]
        who = [f"--job={self.name}", f"--node={node}", *redis]
        run = [sys.executable, "-m", "holdfast_sidecar.cli.main", "run"]
        command = [*run, *who, *BRISK, *options, str(TRAINING), *life]
        self.nodes[node] = Launcher.start(node, command, self.folder, self.environment)
        return self.nodes[node]

    @property
    def environment(self) -> dict[str, str]:
        """What launchers are given; everything that they start inherits it, and is known by it."""
        cache = str(self.folder / "inductor")
        warm = {"PET_NO_STANDBY": "0"} if self.keeps_warm else {}
        return surroundings(self.folder) | {"TORCHINDUCTOR_CACHE_DIR": cache} | warm

    def ranks(self) -> dict[int, Rank]:
        """The ranks of the newest attempt, as far as they have claimed a page."""
        found = []
        for path in find(self.shm, f"*/{self.name}/*/*.page"):
            if (held := open_page(path)) is None:
                continue
            who = held.identity
            step = parse_words(held.read())[Word.STEP]
            held.close()
            found.append(Rank(who.rank, who.node, who.pid, who.attempt, step))
        newest = max((rank.attempt for rank in found), default=-1)
        return {rank.rank: rank for rank in found if rank.attempt == newest}

    def await_stepping(self, count: int, attempt: int = 0) -> dict[int, Rank]:
        """The ranks, once so many of this attempt or a later one have stepped twice."""

        def stepping() -> bool:
            ranks = self.ranks().values()
            running = [n for n in self.nodes.values() if n.process.poll() is None]
            assert running, f"all ended\n{self.story()}"
            return len(ranks) == count and all(r.attempt >= attempt and r.step > 1 for r in ranks)

        self.await_that(stepping, f"{count} ranks step in attempt {attempt}")
        return self.ranks()

    def await_resumed(self, count: int, attempt: int) -> int:
        """The step that all ranks of an attempt resumed from."""
        told = [self.out / f"start-{attempt}-{rank}" for rank in range(count)]
        self.await_that(lambda: all(path.exists() for path in told), "all ranks have resumed")
        (step,) = {int(path.read_text()) for path in told}
        return step

    def await_steps(self, more: int) -> dict[int, Rank]:
        """Let every rank of this very attempt make so many steps."""
        before = self.ranks()

        def advanced() -> bool:
            now = self.ranks()
            assert {r.pid for r in now.values()} == {r.pid for r in before.values()}, self.story()
            return all(now[rank].step >= before[rank].step + more for rank in before)

        self.await_that(advanced, f"{more} more steps of every rank")
        return self.ranks()

    def plan(self) -> Plan | None:
        """The plan in force."""
        return decode(Plan, self._section(Section.PLAN).get("current", ""))

    def incidents(self) -> list[Incident]:
        """What went wrong so far."""
        found = [decode(Incident, text) for text in self._section(Section.INCIDENTS).values()]
        return [incident for incident in found if incident is not None]

    def lease(self) -> Lease:
        """Who leads."""
        assert self.server is not None
        return self.server.store(self.name).read().lease

    def sidecar(self, node: str) -> int:
        """Pid of the sidecar that says it watches this node; 0 while there is none."""
        path = self.folder / "state" / self.name / node / "sidecar.json"
        return int(json.loads(path.read_text())["pid"]) if path.exists() else 0

    def sidecar_log(self, node: str) -> str:
        path = self.folder / "state" / self.name / node / "sidecar.log"
        return path.read_text() if path.exists() else ""

    def say(self, word: str) -> None:
        """Tell the ranks something."""
        (self.out / word).touch()

    def finish(self) -> None:
        """Let the ranks end well, and the launchers with them."""
        self.say("finish")
        codes = {
            name: node.wait() for name, node in self.nodes.items() if node.process.poll() is None
        }
        assert set(codes.values()) <= {0}, self.story()

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        """The job's story is told when it never becomes so."""
        await_that(is_so, what, self.story)

    def story(self) -> str:
        """What everyone said, for a test that fails."""
        lines = [repr(rank) for rank in self.ranks().values()]
        for name, node in self.nodes.items():
            lines.append(f"-- node {name} ({node.process.poll()}):\n{node.output[-4000:]}")
            lines.append(f"-- its sidecar:\n{self.sidecar_log(name)[-4000:]}")
        return "\n".join(lines)

    def processes(self) -> dict[int, str]:
        """Everything alive that stems from this job: by environment, or by a path in its title."""
        mark = str(self.folder)
        found = {}
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                title = " ".join(process.cmdline())
                if mark in title or mark in process.environ().get("OUT", ""):
                    found[process.pid] = title
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def close(self) -> None:
        """End whatever is left, and remove the files."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for node in self.nodes.values():
            node.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _section(self, section: Section) -> dict[str, str]:
        assert self.server is not None
        return dict(self.server.store(self.name).read().section(section))


def new_job(server: Server | None, name: str = "job") -> Job:
    """A job in a directory of its own; not started."""
    folder = Path(tempfile.mkdtemp(prefix="hf-faults-", dir="/tmp"))
    for part in ("out", "shm", "state"):
        (folder / part).mkdir()
    return Job(name, folder, server)


def await_exit(pid: int, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a process that need not be ours has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], timeout_s)[0], f"{pid} is still there"
    finally:
        os.close(handle)
