"""A real job of several nodes on this machine, watched through its pages and treated badly."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.servers import Server

from holdfast.page import Word, parse_words
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import Incident, Plan, decode
from holdfast_sidecar.coordination.store import Lease
from holdfast_sidecar.pages import open_page

TRAINING = Path(__file__).with_name("training.py")

SOAK_SEEDS = range(int(os.environ.get("HOLDFAST_SOAK_SEEDS", "20")))

PATIENCE_S = 60.0
"""For a machine on which everything else runs as well; each wait takes seconds at most here."""

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
class Node:
    """A launcher under way, or over."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Exit code; the test fails when it does not end."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"node {self.name} never ended:\n{self.output}") from None


@dataclass
class Job:
    """One job: its nodes, its files, and what can be seen of it."""

    name: str
    folder: Path
    server: Server | None
    nodes: dict[str, Node] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """What ranks said."""
        return self.folder / "out"

    @property
    def shm(self) -> Path:
        """In the place of /dev/shm."""
        return self.folder / "shm"

    def start(self, node: str, options: Sequence[str], life: Sequence[str]) -> Node:
        """Start a node; `life` is what the ranks do, see training.py."""
        redis = [] if self.server is None else [f"--redis={self.server.settings.url}"]
        who = [f"--job={self.name}", f"--node={node}", *redis]
        command = [*who, *BRISK, *options, str(TRAINING), *life]
        log = self.folder / f"{node}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast_sidecar.cli.main", "run", *command],
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self.nodes[node] = Node(node, process, log)
        return self.nodes[node]

    @property
    def environment(self) -> dict[str, str]:
        """What launchers are given; everything that they start inherits it, and is known by it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "PET_"))}
        return kept | {
            "OUT": str(self.out),
            "HOLDFAST_SET_PATHS_SHM_DIR": str(self.shm),
            "HOLDFAST_SET_PATHS_STATE_DIR": str(self.folder / "state"),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }

    def ranks(self) -> dict[int, Rank]:
        """The ranks of the newest attempt, as far as they have claimed a page."""
        found = []
        for path in self.shm.glob(f"*/{self.name}/*/*.page"):
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
        """Look again and again; the job's story is told when it never becomes so."""
        end_s = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end_s, f"never: {what}\n{self.story()}"
            time.sleep(0.03)

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
