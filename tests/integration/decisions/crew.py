"""Three nodes without torch: real sidecars, real ranks' pages, a real server; and what must hold.

Launchers are threads of the test with the launcher's own reporting and reading. They start a rank
each, end it when the plan says so, and start sidecars anew that die.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.sidecar.node import PRETEND_RANK

from holdfast_sidecar.config.paths import Paths, places
from holdfast_sidecar.config.settings import PathSettings, RedisSettings
from holdfast_sidecar.launcher.plan_state import (
    AttemptState,
    PlanFence,
    seat,
    while_joining,
    while_running,
)
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, StoreUnavailable

STRUCK_SIDECAR = Path(__file__).with_name("struck_sidecar.py")
JOB = "job"
NODES = ("a", "b", "c")
HEARTBEAT_S = 0.15
RESTART_S = 0.2
PATIENCE_S = 60.0
SETTINGS = (
    f"sidecar.heartbeat_s={HEARTBEAT_S}",
    "sidecar.tick_s=0.15",
    "redis.timeout_s=0.3",
    "policy.evidence_timeout_s=45",  # a sidecar that was killed is back by then on any machine
    "evidence.keep=1000",  # one crew is struck more often than a node keeps incidents
    "policy.backoff_s=0.05",
    "policy.backoff_limit_s=0.05",
    "policy.budget=1000",
)


@dataclass(frozen=True)
class Ended:
    """A rank whose end its launcher saw."""

    node: str
    attempt: int
    rank: int
    at_unix_s: float


@dataclass
class Node:
    """A launcher's thread, its rank and its sidecar."""

    name: str
    crew: Crew
    incarnation: str
    sidecar: subprocess.Popen[bytes] | None = None
    rank: subprocess.Popen[bytes] | None = None
    plan: Plan | None = None
    """Whose rank it runs."""
    obeyed: list[tuple[int, int]] = field(default_factory=list)
    """(attempt, epoch) of every plan that it acted on."""
    reporter: Reporter = field(init=False)
    watch: PlanWatch = field(init=False)
    known: int = -1
    fence: PlanFence = field(default_factory=PlanFence)

    def __post_init__(self) -> None:
        stores = [open_store(self.crew.redis, JOB, {}, hears_reports=False) for _ in range(2)]
        self.reporter = Reporter(stores[0], self._first_report(), HEARTBEAT_S)
        self.watch = PlanWatch(stores[1], HEARTBEAT_S)

    @property
    def places(self) -> Paths:
        return places(self.crew.paths, JOB, self.name)

    def start(self) -> None:
        self.places.shm.mkdir(mode=0o700, parents=True)
        self.places.state.mkdir(mode=0o700, parents=True)
        self.start_sidecar()
        self.watch.start()
        self.reporter.start()
        threading.Thread(target=self._live, daemon=True).start()

    def start_sidecar(self) -> None:
        with self.places.sidecar_log.open("ab") as log:
            self.sidecar = subprocess.Popen(
                [
                    *(sys.executable, str(STRUCK_SIDECAR), "sidecar", "--job", JOB),
                    *("--node", self.name, "--launcher-pid", str(os.getpid())),
                    *("--redis", self.crew.redis.url),
                    *(f"--set=paths.shm_dir={self.crew.paths.shm_dir}",),
                    *(f"--set=paths.state_dir={self.crew.paths.state_dir}",),
                    *(f"--set={setting}" for setting in SETTINGS),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "STRIKE_DIR": str(self.crew.strikes)},
            )

    def kill_rank(self) -> None:
        """SIGKILL; the launcher's thread sees it."""
        assert self.rank is not None
        os.kill(self.rank.pid, signal.SIGKILL)

    def _live(self) -> None:
        while not self.crew.is_over.wait(0.02):
            assert self.sidecar is not None
            if self.sidecar.poll() is not None and not self.crew.is_over.is_set():
                self.reporter.say(ended_sidecar=self.sidecar.pid)
                self.crew.is_over.wait(RESTART_S)
                self.start_sidecar()
            self._follow(self.watch.plan)

    def _follow(self, plan: Plan | None) -> None:
        if self.plan is None:
            standing = while_joining(plan, self.incarnation, self.known, self.fence)
            if standing is AttemptState.RUN and plan is not None:
                self._obey(plan)
                self._start_rank(plan)
            return
        if self.rank is not None and (code := self.rank.poll()) is not None:
            self._rank_ended(code)
        if (
            while_running(plan, self.plan.attempt, self.fence) is AttemptState.END
            and plan is not None
        ):
            self._obey(plan)
            if self.rank is not None:
                self.rank.kill()
                self._rank_ended(self.rank.wait())
            self.plan = None
            self.reporter.say(state="joining", attempt=self.known, exits=[])

    def _obey(self, plan: Plan) -> None:
        self.obeyed.append((plan.attempt, plan.epoch))
        self.fence = PlanFence(plan.attempt, plan.epoch)
        self.reporter.say(plan=self.watch.plan_text)

    def _start_rank(self, plan: Plan) -> None:
        member = seat(plan, self.incarnation)
        assert member is not None
        self.plan, self.known = plan, plan.attempt
        self.rank = subprocess.Popen(
            [
                *(sys.executable, str(PRETEND_RANK), f"--page-dir={self.places.shm}"),
                f"--evidence-dir={self.places.evidence(plan.attempt)}",
                *(f"--attempt={plan.attempt}", f"--epoch={plan.epoch}", f"--node={self.name}"),
                *(f"--rank={member.first_rank}", f"--world-size={plan.world_size}"),
            ]
        )
        self.reporter.say(state="running", attempt=plan.attempt, exits=[])

    def _rank_ended(self, code: int) -> None:
        assert self.rank is not None
        assert self.plan is not None
        member = seat(self.plan, self.incarnation)
        assert member is not None
        now, number = time.time(), member.first_rank
        self.crew.ended.append(Ended(self.name, self.plan.attempt, number, now))
        exits = [Exit(number, 0, self.rank.pid, code, now, 0)]
        self.rank = None
        self.reporter.say(state="failed", exits=exits)

    def _first_report(self) -> AgentReport:
        return AgentReport(
            node=self.name,
            incarnation=self.incarnation,
            state="joining",
            attempt=-1,
            beat=0,
            slots=1,
            address="127.0.0.1",
            min_nodes=len(NODES),
            max_nodes=len(NODES),
            last_call_s=0.0,
            pid=os.getpid(),
        )


@dataclass
class Crew:
    """The whole job. `close` ends everything."""

    folder: Path
    redis: RedisSettings
    nodes: dict[str, Node] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.strikes.mkdir()
        self._store = open_store(self.redis, JOB, {})

    @property
    def strikes(self) -> Path:
        return self.folder / "strikes"

    @property
    def paths(self) -> PathSettings:
        return PathSettings(shm_dir=str(self.folder / "shm"), state_dir=str(self.folder / "state"))

    def start(self) -> None:
        for name in NODES:
            self.nodes[name] = Node(name, self, f"launcher-{name}")
            self.nodes[name].start()

    def close(self) -> None:
        self.is_over.set()
        for node in self.nodes.values():
            for process in (node.rank, node.sidecar):
                if process is not None:
                    process.kill()
                    process.wait()
            node.watch.stop()

    def section(self, section: Section) -> dict[str, str]:
        """What the server holds; nothing while it is away."""
        try:
            return dict(self._store.read().section(section))
        except StoreUnavailable:
            return {}

    def plan(self) -> Plan | None:
        return decode(Plan, self.section(Section.PLAN).get(CURRENT, ""))

    def lease(self) -> Lease:
        try:
            return self._store.read().lease
        except StoreUnavailable:
            return Lease(0, "")

    def leader(self) -> str:
        return self.lease().candidate.partition("/")[0]

    def incidents(self, attempt: int) -> list[Incident]:
        found = (decode(Incident, text) for text in self.section(Section.INCIDENTS).values())
        return [i for i in found if i is not None and i.attempt == attempt]

    def await_stepping(self, attempt: int = 0) -> Plan:
        """Until all ranks of this attempt, or a later one, step under a plan that runs."""

        def is_stepping() -> Plan | None:
            plan = self.plan()
            if plan is None or plan.state != "running" or plan.attempt < attempt:
                return None
            if not all(n.plan is not None and n.plan.attempt == plan.attempt for n in self.all()):
                return None
            reports = [json.loads(text) for text in self.section(Section.NODES).values()]
            told = [r for r in reports if r["attempt"] == plan.attempt]
            steps = [rank["step"] for report in told for rank in report["ranks"]]
            return plan if len(steps) == len(NODES) and min(steps) > 5 else None

        plan = self.wait_for(is_stepping, f"all step in attempt {attempt}")
        assert isinstance(plan, Plan)
        return plan

    def all(self) -> list[Node]:
        return list(self.nodes.values())

    def freeze(self, name: str) -> None:
        """SIGSTOP of a node's rank: a hang with positive evidence."""
        rank = self.nodes[name].rank
        assert rank is not None
        os.kill(rank.pid, signal.SIGSTOP)

    def strike(self, writes: int, what: str) -> None:
        """At the leader's so-manieth order from now on."""
        for name in ("fell", "go-on"):
            (self.strikes / name).unlink(missing_ok=True)
        new = self.strikes / ".strike"
        new.write_text(f"{writes} {what}")
        new.rename(self.strikes / "strike")

    def has_fallen(self) -> bool:
        return (self.strikes / "fell").exists()

    def go_on(self) -> None:
        (self.strikes / "go-on").touch()

    def wait_for(self, answer: Callable[[], Any], what: str) -> Any:
        """Ask again and again; the story is told when it never becomes so."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            if found := answer():
                return found
            time.sleep(0.02)
        raise AssertionError(f"never: {what}\n{self.story()}")

    def orders(self) -> list[tuple[int, str, str, str | None, float]]:
        """(epoch, candidate, section, value, when) of every order that went through."""
        path = self.strikes / "orders"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()]

    def check(self) -> None:
        """At most one leader acted in an epoch, nobody obeyed a stale order, and what was ended had
        its evidence on disk on every node before."""
        leaders: dict[int, str] = {}
        for epoch, candidate, *_ in self.orders():
            assert leaders.setdefault(epoch, candidate) == candidate, f"epoch {epoch} led twice"
        for node in self.all():
            assert node.obeyed == sorted(node.obeyed), f"{node.name} obeyed a stale plan"
            assert {epoch for _, epoch in node.obeyed} <= leaders.keys()
        hangs = {
            plan.attempt: plan.incident
            for _, _, section, value, _ in self.orders()
            if section == Section.PLAN.value
            and (plan := decode(Plan, value or "")) is not None
            and plan.cause == "hang"
        }
        for ended in self.ended:
            if ended.attempt in hangs:
                for node in self.all():
                    kept = node.places.incident(hangs[ended.attempt]) / "kept.json"
                    at_unix_s = json.loads(kept.read_text())["at_unix_s"]
                    assert at_unix_s < ended.at_unix_s, f"{ended} before {node.name} kept it"

    def story(self) -> str:
        """What everyone said, for a test that fails."""
        lines = [repr(self.plan()), repr(self.lease())]
        for node in self.all():
            log = node.places.sidecar_log.read_text()[-3000:]
            lines.append(f"-- {node.name}: {node.obeyed} {node.reporter.report}\n{log}")
        return "\n".join(lines)
