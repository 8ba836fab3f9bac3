"""Many nodes on this machine: real sidecars beside launchers without ranks, and a real Redis."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from bench.benchmark import NotRun
from bench.launch.redis_server import RedisServer
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import CURRENT, Section, StoreUnavailable, View
from holdfast_sidecar.store.redis_store import RedisStore

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).parent / "programs" / "launcher.py"
LOOK_S = 0.01
ACQUAINTED_S = 3.0
"""After an attempt's sidecars told where they answer, in which all are asked whether they live."""

BRISK = (
    *("policy.budget=1000000", "policy.stepless_limit=1000000"),
    *("policy.backoff_s=0.01", "policy.backoff_limit_s=0.01"),
)
"""Nodes are lost more often here than a job should put up with, and no rank ever steps."""

ALARMS = (Kind.NODE_LOST, Kind.SIDECAR_LOST)


class Company:
    """A context: leaving it kills everything that was started and removes its files."""

    def __init__(self, members: int) -> None:
        self.job = f"bench-{uuid.uuid4().hex[:8]}"
        self.members = members
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}
        self._sidecars: set[int] = set()
        self._server: RedisServer | None = None

    def __enter__(self) -> Company:
        try:
            self._server = RedisServer(self.directory)
        except NotRun:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.store = RedisStore(self._server.client(), self.job)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for launcher in self.launchers.values():
            launcher.kill()
            launcher.wait()
        for node in self.launchers:
            _send(self.sidecar(node), signal.SIGKILL)
        for pid in self._sidecars:
            _send(pid, signal.SIGKILL)
        assert self._server is not None
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, node: str) -> None:
        """Start a node's launcher, which starts its sidecar."""
        assert self._server is not None
        command = [sys.executable, str(LAUNCHER), f"--job={self.job}", f"--node={node}"]
        command += [f"--redis={self._server.url}", f"--nodes={self.members}"]
        command += [f"--state-dir={self.directory / 'state'}", f"--shm-dir={self.directory}"]
        command += [f"--set={value}" for value in BRISK]
        with (self.directory / f"{node}.log").open("ab") as log:
            self.launchers[node] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=_environment()
            )

    def sidecar(self, node: str) -> int:
        """Its pid as it tells it; 0 while there is none."""
        path = self.directory / "state" / self.job / node / "sidecar.json"
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads(path.read_text())["pid"])
        return 0

    def signal_node(self, node: str, number: int) -> None:
        """To the whole node, as a machine that stops: its sidecar and its launcher."""
        sidecar = self.sidecar(node)
        self._sidecars.add(sidecar)
        for pid in (self.launchers[node].pid, sidecar):
            _send(pid, number)

    def signal_sidecar(self, node: str, number: int) -> int:
        """To its sidecar alone; its pid."""
        pid = self.sidecar(node)
        self._sidecars.add(pid)
        _send(pid, number)
        return pid

    def view(self) -> View:
        """What Redis holds of the job."""
        return self.store.read()

    def plan(self) -> Plan | None:
        """The plan in force."""
        return decode(Plan, self.view().section(Section.PLAN).get(CURRENT, ""))

    def leader(self) -> str:
        """The node that leads."""
        return self.view().lease.candidate.partition("/")[0]

    def findings(self, view: View) -> list[Finding]:
        """What all sidecars tell of lost nodes and sidecars."""
        reports = (decode(NodeReport, text) for text in view.section(Section.NODES).values())
        return [f for r in reports if r is not None for f in r.findings if f.kind in ALARMS]

    def log_lines(self, *words: str) -> list[str]:
        """Lines of all sidecars' logs that have one of these in them."""
        logs = self.directory.glob(f"state/{self.job}/*/sidecar.log")
        lines = (line for log in logs for line in log.read_text().splitlines())
        return [line for line in lines if any(word in line for word in words)]

    def wait_until(self, is_so: Callable[[], bool], within_s: float, what: str) -> float:
        """Look at every wake-up; when it became so. NotRun when it never does."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            with contextlib.suppress(StoreUnavailable):
                if is_so():
                    return time.monotonic()
                self.store.wait(LOOK_S)
        for line in self.log_lines("WARNING", "ERROR")[-20:]:
            print(f"  {line}", file=sys.stderr)
        raise NotRun(f"{what}: not within {within_s:g} s")

    def wait_running(self, within_s: float = 60.0) -> Plan:
        """Until an attempt runs whose members all say so, and all sidecars beat and know of one
        another: before, there is no witness but the heartbeats, and patience is 30 s."""
        told_s: dict[object, float] = {}

        def is_acquainted(attempt: int, node: NodeReport | None) -> bool:
            if node is None or not node.echo_address:
                return False
            now_s = time.monotonic()
            since_s = told_s.setdefault((attempt, node.incarnation, node.echo_address), now_s)
            return now_s - since_s >= ACQUAINTED_S

        def is_running() -> bool:
            view = self.view()
            plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
            if plan is None or plan.state != "running":
                return False
            agents, nodes = view.section(Section.AGENTS), view.section(Section.NODES)
            wanted = (f'"attempt":{plan.attempt},', '"state":"running"')
            told = [agents.get(member.node, "") for member in plan.members]
            if not all(word in text for text in told for word in wanted) or self.findings(view):
                return False
            known = [decode(NodeReport, nodes.get(member.node, "")) for member in plan.members]
            others = len(plan.members) > 1
            acquainted = [not others or is_acquainted(plan.attempt, one) for one in known]
            return all(acquainted)

        self.wait_until(is_running, within_s, "all members run")
        plan = self.plan()
        assert plan is not None
        return plan


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if pid > 0:
            os.kill(pid, number)


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH", ""))))
    return {**kept, "PYTHONPATH": path}


class Load:
    """A context: so many processes compute all the time."""

    def __init__(self, processes: int) -> None:
        self._count = processes
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Load:
        command = [sys.executable, "-S", "-c", "while True: pass"]
        self._processes = [subprocess.Popen(command) for _ in range(self._count)]
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def sleep_until(at_s: float) -> None:
    """Sleep to this moment of the monotonic clock."""
    threading.Event().wait(max(0.0, at_s - time.monotonic()))
