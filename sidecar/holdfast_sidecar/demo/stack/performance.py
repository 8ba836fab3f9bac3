"""One whole demonstration: a job, what watches it, a node that is killed, and who is called."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

import psutil

from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.screen import Screen
from holdfast_sidecar.demo.stack.alerting import Alerting, run_alerting
from holdfast_sidecar.demo.stack.daemons import free_port
from holdfast_sidecar.demo.stack.director import Director
from holdfast_sidecar.demo.stack.outcome import Addresses, Verdict, judge
from holdfast_sidecar.demo.stack.receiver import Receiver
from holdfast_sidecar.demo.stack.requirements import Requirement
from holdfast_sidecar.demo.stack.scenario import DOOMED, JOB, NODES
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.demo.workspace import Workspace
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server


@dataclass(frozen=True)
class Wishes:
    """How it is to be done."""

    found: Mapping[Requirement, str]
    """Paths of the programs."""
    factor: float
    """By how much the shipped waits are shortened."""
    stays: bool
    """Everything is left up until Ctrl-C once the verdict was shown."""


@dataclass
class Performance:
    """One of them. `show` is given the verdict once all has ended, or before where it stays up."""

    wishes: Wishes
    workspace: Workspace
    screen: Screen
    started: float
    show: Callable[[Verdict], None]
    nodes: Nodes = field(default_factory=Nodes)
    temporary: str = ""
    """For what torch leaves in such a directory when its node is killed."""
    listen: dict[str, str] = field(default_factory=lambda: _addresses(NODES))
    """Node -> where its sidecar is scraped; the same after the node was away."""

    def perform(self) -> Verdict:
        """Whatever went wrong is in the verdict."""
        verdict = Verdict(DOOMED, 0.0, self.wishes.factor)
        left: list[psutil.Process] = []
        with ExitStack() as up:
            try:
                verdict = self._play(up, left)
                was_shown = self.wishes.stays
            except DemonstrationStopped as stopped:
                verdict, was_shown = self._stopped(verdict, stopped), False
        outlived = [f"process {process.pid} outlived its launcher" for process in left]
        verdict = dataclasses.replace(verdict, problems=(*verdict.problems, *outlived))
        if was_shown:
            for line in outlived:
                self.screen.tell(f"failed: {line}")
        else:
            self.show(verdict)
        return verdict

    def _play(self, up: ExitStack, left: list[psutil.Process]) -> Verdict:
        self.temporary = up.enter_context(
            TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True)
        )
        server = start_server(self.workspace.server)
        up.callback(server.stop)
        store = open_store(server.settings, JOB, {})
        up.callback(store.close)
        up.callback(lambda: left.extend(self.nodes.end()))
        for name in NODES:
            self._start(name, server.settings)
        self.screen.tell(f"holdfast run on nodes {', '.join(NODES)}, without a spare")
        folder = self.workspace.root / "alerting"
        receiver = Receiver(folder / "runbooks")
        up.callback(receiver.close)
        receiver.start()
        director = Director(self.nodes, store, self.screen, receiver)
        # Before Prometheus: a discovery that nobody answers yet is asked again half a minute later.
        director.await_training()
        sidecars = list(self.listen.values())
        alerting = up.enter_context(
            run_alerting(folder, self.wishes.found, sidecars, self.wishes.factor, receiver)
        )
        addresses = self._told_addresses(alerting)
        director.await_known(alerting)
        verdict = self._kill(director, server.settings)
        if self.wishes.stays:
            verdict = dataclasses.replace(verdict, addresses=addresses)
            self.show(verdict)
            self._stay(director)
        return verdict

    def _kill(self, director: Director, redis: RedisSettings) -> Verdict:
        killed = director.kill()
        director.await_page()
        back_unix_s = time.time()
        self._start(DOOMED, redis)
        self.screen.tell(f"→ node {DOOMED} is back")
        director.await_recovery(killed)
        director.await_all_clear()
        verdict = Verdict(
            DOOMED,
            time.monotonic() - self.started,
            self.wishes.factor,
            back_s=back_unix_s - killed.at_unix_s,
        )
        heard = director.receiver.heard()
        return judge(verdict, killed, director.incident(killed), heard, JOB)

    def _stay(self, director: Director) -> None:
        """Ctrl-C is how this ends, and no failure."""
        self.screen.tell("all of it stays up until Ctrl-C")
        try:
            director.stay()
        except KeyboardInterrupt:
            self.screen.tell("ending")
        except DemonstrationStopped as stopped:
            self.screen.tell(f"ending: {stopped}")

    def _start(self, name: str, redis: RedisSettings) -> None:
        command = programs.node_of_the_pair(self.workspace, redis, JOB, name, self.listen[name])
        before = self.nodes.nodes.get(name)
        log = self.workspace.log(f"node-{name}" if before is None else f"node-{name}-again")
        environment = programs.environment() | {"TMPDIR": self.temporary}
        self.nodes.start(name, command, environment, log)

    def _told_addresses(self, alerting: Alerting) -> Addresses:
        survivor = next(name for name in NODES if name != DOOMED)
        addresses = Addresses(
            alerting.prometheus.url, alerting.alertmanager.url, f"http://{self.listen[survivor]}/"
        )
        for what, url in dataclasses.asdict(addresses).items():
            self.screen.tell(f"{what:12}  {url}")
        return addresses

    def _stopped(self, verdict: Verdict, stopped: DemonstrationStopped) -> Verdict:
        for line in stopped.tail:
            self.screen.tell(f"  | {line}")
        return dataclasses.replace(
            verdict, problems=(str(stopped),), seconds=time.monotonic() - self.started
        )


def _addresses(nodes: Iterable[str]) -> dict[str, str]:
    """A free port of loopback each: a node that was away is to be found where it was."""
    return {node: f"127.0.0.1:{free_port()}" for node in nodes}
