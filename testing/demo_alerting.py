"""`holdfast demo --stack`: a real alert, from a killed node to whoever is on call.

Prometheus and Alertmanager are the real ones with the shipped rules, routes and scrape block; only
who is called is ours, a webhook on loopback.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
import psutil

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration import verdict as watching
from holdfast_sidecar.cli.demonstration.job import (
    DemonstrationStopped,
    Nodes,
    Workspace,
    open_workspace,
)
from holdfast_sidecar.cli.demonstration.screen import RunProgress, Screen, stage
from holdfast_sidecar.cli.demonstration.verdict import LOOK_EVERY_S, PATIENCE_S, find_within, look
from holdfast_sidecar.cli.tables import BAD, GOOD, paint, table
from holdfast_sidecar.config.settings import EXIT_CODE, BadInput, RedisSettings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server
from holdfast_sidecar.store.protocol import Store
from testing.alerting import (
    Alerting,
    Requirement,
    find_programs,
    free_port,
    holds,
    knows_the_job,
    missing,
    run_alerting,
)
from testing.pager import Alert, Notice, Receiver, all_clear, pages, tickets, watchdogs

# What happens to the job for which somebody is called, and how long each part may take.

JOB = "demo-stack"
NODES = ("a", "b")
"""Both train, and there is no spare: what heals by itself pages nobody."""
DOOMED = "b"
SAVE_EVERY_STEPS = 500
"""A page for stale checkpoints would be one too many: some are made every minute or so."""

BRISK = 5.0
"""By how much --brisk shortens the waits. Ten would do on a machine of its own; here a scrape, an
evaluation or a restart may take a second that is not divided, and symptoms must not be told before
their cause."""

KNOWN_WITHIN_S = 120.0
"""Until Prometheus has scraped both nodes and evaluated the rules, and the watchdog was heard: a
service discovery, a scrape and two evaluations, 75 s at most with the shipped waits."""
PAGED_WITHIN_S = 180.0
"""Some 80 s with the shipped waits; it has to be less than 120 s, see docs/alerts.md."""
RESOLVED_WITHIN_S = 360.0
"""The shipped keep_firing_for and group_interval are a minute and a half; the rest is the restart,
and for a slow machine."""


# What was paged for a killed node, and whether that was right. Pure.

NODE_LOST = "node_lost"
"""What has to be told as the cause: a crash of its ranks, say, would lead elsewhere."""


@dataclass(frozen=True)
class Killed:
    """The node that was killed. The time is this machine's wall clock."""

    node: str
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class Addresses:
    """Where to look while it is up: URLs."""

    prometheus: str
    alertmanager: str
    page: str


@dataclass(frozen=True)
class Verdict:
    """The whole demonstration. Seconds count from the kill; None when it never came."""

    node: str
    seconds: float
    slower: float
    """The shipped waits are so many times as long as those of this demonstration."""
    addresses: Addresses | None = None
    cause: str = ""
    page: Alert | None = None
    paged_s: float | None = None
    back_s: float | None = None
    recovered_s: float | None = None
    resolved_s: float | None = None
    tickets: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {**dataclasses.asdict(self), "ok": not self.problems}


PAGED_AT_MOST_S = 120.0
"""After the kill, with the shipped waits; all the more with shorter ones."""


def judge(
    verdict: Verdict, killed: Killed, incident: Incident | None, heard: Sequence[Notice], run: str
) -> Verdict:
    """Fill in what came of it."""
    paged, clear = pages(heard, run), all_clear(heard, run)
    first = _about(paged[0], killed.node) if paged else None
    recovered = incident is not None and incident.recovered_unix_s > 0
    return dataclasses.replace(
        verdict,
        cause="" if incident is None else incident.cause,
        page=first,
        paged_s=paged[0].at_unix_s - killed.at_unix_s if paged else None,
        recovered_s=incident.recovered_unix_s - killed.at_unix_s
        if incident is not None and recovered
        else None,
        resolved_s=clear.at_unix_s - killed.at_unix_s if clear is not None else None,
        tickets=tuple(sorted({name for one in tickets(heard, run) for name in one.names})),
        problems=(
            *verdict.problems,
            *_wrong_pages(paged),
            *_too_late(paged, killed),
            *([] if first is None else _wrong_page(first, killed, incident)),
            *([] if recovered else ["the job did not recover"]),
            *([] if clear is not None or not paged else ["the page was never resolved"]),
        ),
    )


def _about(notice: Notice, node: str) -> Alert | None:
    """The alert of this node where there is one, else the first."""
    named = [alert for alert in notice.alerts if alert.node == node]
    return next(iter([*named, *notice.alerts]), None)


def _wrong_pages(paged: Sequence[Notice]) -> list[str]:
    if not paged:
        return ["nobody was paged"]
    told = [name for one in paged for name in one.names]
    return [f"paged for {', '.join(told)}; should be one alert, once"] if len(told) != 1 else []


def _too_late(paged: Sequence[Notice], killed: Killed) -> list[str]:
    waited_s = paged[0].at_unix_s - killed.at_unix_s if paged else 0.0
    late = waited_s > PAGED_AT_MOST_S
    return [f"paged after {waited_s:.0f} s; {PAGED_AT_MOST_S:g} s at most"] if late else []


def _wrong_page(page: Alert, killed: Killed, incident: Incident | None) -> list[str]:
    problems = []
    if page.node != killed.node:
        problems.append(f"the page is about {page.node or 'no node'}, killed was {killed.node}")
    if incident is None:
        problems.append("Holdfast has recorded no incident")
    elif incident.cause != NODE_LOST:
        problems.append(f"Holdfast took the lost node for {incident.cause}")
    elif incident.cause not in page.description:
        problems.append(f"the page does not tell the cause, {incident.cause}")
    return problems


# Plays it: waits until all is known, kills the node, brings it back, and waits for each notice.

T = TypeVar("T")

WHAT = "on call"


@dataclass
class Director:
    """One run of it, on nodes that were started already."""

    nodes: Nodes
    store: Store
    screen: Screen
    receiver: Receiver
    alerting: Alerting | None = None
    """Once it runs."""
    cluster: Cluster = field(default_factory=Cluster)
    waiting: RunProgress = field(default_factory=lambda: RunProgress(WHAT, 0, 1))

    def await_training(self) -> None:
        """Every rank steps, and some of its work is kept."""
        self._wait_for("the ranks to step", PATIENCE_S, lambda: watching.stepping(self.cluster))
        self._wait_for(
            "a snapshot", PATIENCE_S, lambda: watching.has_kept_work(self.cluster) or None
        )

    def await_known(self, alerting: Alerting) -> None:
        """Prometheus knows the job well enough to miss a part of it, and its word gets through."""
        self.alerting = alerting
        prometheus = alerting.prometheus.url
        known = knows_the_job(JOB, len(NODES))
        self._wait_for(
            "Prometheus to know both nodes",
            KNOWN_WITHIN_S,
            lambda: holds(prometheus, known) or None,
        )
        self._wait_for(
            "the watchdog's word", KNOWN_WITHIN_S, lambda: watchdogs(self.receiver.heard()) or None
        )

    def kill(self) -> Killed:
        """As a power cut does it."""
        plan, step = self.cluster.plan, watching.stepping(self.cluster)
        assert plan is not None
        killed = Killed(DOOMED, plan.attempt, time.time())
        self.nodes.kill(DOOMED)
        self.screen.tell(f"→ kill node {DOOMED}, at step {step}; there is no spare")
        return killed

    def await_page(self) -> None:
        """Somebody is called; nobody is, and that is a row of the verdict."""
        paged = self._find_within(
            "somebody to be paged",
            PAGED_WITHIN_S,
            lambda: pages(self.receiver.heard(), JOB) or None,
        )
        for alert in paged[0].alerts if paged else ():
            self.screen.tell(f"paged: {alert.name}, node {alert.node or '-'}: {alert.summary}")

    def await_recovery(self, killed: Killed) -> None:
        """The node is back, and every rank steps again."""
        self._find_within(
            "every rank to step again",
            PATIENCE_S,
            lambda: self.has_recovered(killed) or None,
        )

    def await_all_clear(self) -> None:
        """Who was called is told that it is over; nobody was, and there is nothing to wait for."""
        if not pages(self.receiver.heard(), JOB):
            return
        clear = self._find_within(
            "the page to resolve",
            RESOLVED_WITHIN_S,
            lambda: all_clear(self.receiver.heard(), JOB),
        )
        if clear is not None:
            self.screen.tell("resolved")

    def incident(self, killed: Killed) -> Incident | None:
        """What Holdfast recorded of the kill."""
        return watching.incident_of_attempt(self.cluster, killed.attempt)

    def has_recovered(self, killed: Killed) -> bool:
        """Whether every rank steps again."""
        incident = self.incident(killed)
        return incident is not None and incident.recovered_unix_s > 0

    def stay(self) -> None:
        """Until Ctrl-C, or until a node or a program ends by itself (DemonstrationStopped)."""
        while True:
            self._look_quietly()
            self.store.wait(LOOK_EVERY_S)

    def _wait_for(self, what: str, limit_s: float, find: Callable[[], T | None]) -> T:
        if (found := self._find_within(what, limit_s, find)) is None:
            raise DemonstrationStopped(f"waited {limit_s:g} s for {what}")
        return found

    def _find_within(self, what: str, limit_s: float, find: Callable[[], T | None]) -> T | None:
        began = time.monotonic()

        def look_anew() -> None:
            waited = time.monotonic() - began
            said = f"waiting for {what}: {waited:.0f} s"
            details = watching.progress(self.cluster, WHAT, 1).details
            self.waiting = RunProgress(
                f"waiting for {what}", int(waited), int(limit_s), details, said
            )
            self._look_quietly()
            self.screen.show(self.waiting)

        return find_within(limit_s, look_anew, self.store, find)

    def _look_quietly(self) -> None:
        if self.alerting is not None:
            self.alerting.check()
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)


# One whole demonstration: a job, what watches it, a node that is killed, and who is called.


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
        command = job.node_of_the_pair(self.workspace, redis, JOB, name, self.listen[name])
        before = self.nodes.nodes.get(name)
        log = self.workspace.log(f"node-{name}" if before is None else f"node-{name}-again")
        environment = job.environment() | {"TMPDIR": self.temporary}
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


# `python -m testing.demo_alerting`: who was called, with what words, and how soon.

HEADINGS = ("what", "after the kill")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs and files in this new directory, and all of it up until Ctrl-C.",
)
@click.option("--brisk", is_flag=True, help="Waits of rules and routes are a fifth as long.")
@click.pass_context
def alerting(context: click.Context, as_json: bool, keep: Path | None, brisk: bool) -> None:
    """Kill a node under real Prometheus and Alertmanager, and be called.

    They watch two nodes that have no spare, with the rules, routes and scrape block that come with
    Holdfast. A node is killed; a webhook of ours is called, as whoever is on call would be; the
    node comes back, and the webhook is told that it is over. That takes some four minutes with the
    shipped waits, two with --brisk. Both programs have to be installed; what is missing is told,
    with how to get it.

    Exit code 1 when nobody was paged, or more than once, or without node and cause, or it was not
    resolved.
    """
    found = find_programs(shutil.which)
    for line in missing(found):
        click.echo(f"holdfast: {line}", err=True)
    if missing(found):
        context.exit(EXIT_CODE)
    wishes = Wishes(found, BRISK if brisk else 1.0, keep is not None)
    with stage(keep, as_json) as (shown, started):

        def show(verdict: Verdict) -> None:
            """While all is up: its addresses lead somewhere only then."""
            shown.close()
            told = json.dumps(verdict.as_json(), indent=2) if as_json else stack_page(verdict)
            click.echo(told)

        with open_workspace(keep, SAVE_EVERY_STEPS) as workspace:
            verdict = Performance(wishes, workspace, shown, started, show).perform()
    context.exit(1 if verdict.problems else 0)


def stack_page(verdict: Verdict) -> str:
    """The page, its times, and where to look while all is up."""
    lines = ["", *_page(verdict), "", table(HEADINGS, _times(verdict)), *_waits(verdict), ""]
    if verdict.addresses is not None:
        shown = dataclasses.asdict(verdict.addresses)
        lines += [*(f"{what:12}  {url}" for what, url in shown.items()), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _page(verdict: Verdict) -> Iterator[str]:
    page = verdict.page
    if page is None:
        yield "nobody was paged"
        return
    yield paint(f"paged: {page.name}", BAD if verdict.problems else GOOD)
    yield f"  {page.summary}"
    yield f"  run {page.run}, node {page.node or '-'}, cause {verdict.cause or '-'}"
    yield f"  {page.description}"
    yield f"  runbook {page.runbook}"
    yield f"tickets: {', '.join(verdict.tickets) or 'none'}"


def _times(verdict: Verdict) -> list[list[str]]:
    return [
        ["somebody was paged", _seconds(verdict.paged_s)],
        ["the node was started again", _seconds(verdict.back_s)],
        ["every rank stepped again", _seconds(verdict.recovered_s)],
        ["the page was resolved", _seconds(verdict.resolved_s)],
    ]


def _waits(verdict: Verdict) -> list[str]:
    if verdict.slower == 1:
        return []
    return [f"the waits of rules and routes are {verdict.slower:g} times shorter than the shipped"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} s"


if __name__ == "__main__":
    try:
        alerting()
    except BadInput as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(EXIT_CODE)
