"""What `holdfast attach` prints while it watches, and when it has seen enough."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import click

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import rmdir, unlink
from holdfast_sidecar.cli.find_job import answers, read_records
from holdfast_sidecar.config.paths import Paths, hold_shm, places
from holdfast_sidecar.config.settings import BadInput, RedisSettings, Settings
from holdfast_sidecar.export.routes import Exporter
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.incidents.explain import sum_up, tell, whom
from holdfast_sidecar.linux.threads import start_needed_thread
from holdfast_sidecar.ranks.ending import remove_shared_memory
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.startup import SidecarRecord, Site, await_place, lock_node, write_record
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import KeptServer, start_server
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Section, Store, View
from holdfast_sidecar.wiring import (
    assemble,
    collect_seldom,
    coordinate,
    open_exporter,
    open_storage_client,
)

HINT_S = 60.0
"""Ranks claim their pages while torch is imported: a minute from a slow disk at worst."""


@dataclass
class Console:
    """Prints what changed. `say` gets one line at a time."""

    say: Callable[[str], object]
    hint: str
    """Said once when no rank has come for a while."""
    began_s: float
    _ranks: dict[int, int] = field(default_factory=dict)
    """rank -> pid of those that live."""
    _found: set[object] = field(default_factory=set)
    _told: dict[str, str] = field(default_factory=dict)
    """Incident -> its newest verdict."""
    _open: dict[str, bool] = field(default_factory=dict)
    """Incident -> whether it is not over."""
    _alone_since_s: float | None = None
    _seen: bool = False

    def look(
        self,
        alive: Mapping[int, int],
        findings: Iterable[Finding],
        view: View | None,
        now_s: float,
    ) -> None:
        """Print what is new. `alive`: rank -> pid; `now_s` is CLOCK_MONOTONIC."""
        for rank in sorted(alive.items() - self._ranks.items()):
            self.say(f"watching rank {rank[0]} (process {rank[1]})")
        for rank in sorted(self._ranks.items() - alive.items()):
            self.say(f"rank {rank[0]} (process {rank[1]}) has ended")
        self._ranks = dict(alive)
        self._seen = self._seen or bool(alive)
        self._alone_since_s = None if alive else (self._alone_since_s or now_s)
        if not self._seen and self.hint and now_s - self.began_s > HINT_S:
            self.say(self.hint)
            self.hint = ""
        self._tell_findings(list(findings))
        self._tell_incidents(view)

    def alone_for_s(self, now_s: float) -> float:
        """For how long every rank that was seen has been gone; 0 before the first one came."""
        if not self._seen or self._alone_since_s is None:
            return 0.0
        return now_s - self._alone_since_s

    @property
    def is_in_trouble(self) -> bool:
        """Whether an incident was told that is not over."""
        return any(self._open.values())

    def _tell_findings(self, findings: list[Finding]) -> None:
        for finding in findings:
            if finding.key not in self._found:
                reasons = "; ".join(finding.evidence)
                who = whom(finding.node, finding.ranks)
                sure = f"{finding.confidence:.0%} sure"
                self.say(f"found {finding.kind.value}: {who} ({sure}): {reasons}")
        self._found = {finding.key for finding in findings}

    def _tell_incidents(self, view: View | None) -> None:
        texts = {} if view is None else view.section(Section.INCIDENTS)
        for identifier, text in texts.items():
            incident = decode(Incident, text)
            if incident is None:
                continue
            story = tell(incident)
            verdict = sum_up(story)
            self._open[identifier] = story.lost_s is None
            if self._told.get(identifier) == verdict:
                continue
            self._told[identifier] = verdict
            over = "" if story.lost_s is None else f" (over after {span(story.lost_s)})"
            self.say(f"incident {identifier}{over}: {verdict}")


# Where the nodes of an attached job agree: a server given, one of our own, or none.
#
# What is kept on disk does not depend on it; `holdfast status` and several nodes do.


@dataclass
class AttachedStore:
    """A store, and what has to be undone once it is closed."""

    store: Store
    undo: list[Callable[[], object]] = field(default_factory=list)

    def close(self) -> None:
        """Let go of it, and of a server of our own."""
        for step in self.undo:
            step()


def open_attached_store(settings: RedisSettings, job: str, where: Paths) -> AttachedStore:
    """The store of this job. Call it from the main thread: a server of our own dies with that."""
    if settings.url:
        return AttachedStore(open_store(settings, job, os.environ))
    known = read_records(where.state.parent.parent, settings).get(job)
    if known is not None and answers(known):
        # Another node of this job on this machine was first.
        return AttachedStore(open_store(known, job, {}))
    try:
        server = KeptServer(start_server(where.server), _tell)
    except BadInput as error:
        _tell(f"{error}; `holdfast status` can't see this job")
        return AttachedStore(MemoryStore(MemoryServer(), job))
    server.start()
    _write_record(where, server)
    own = replace(settings, url=server.url, user="", password_file=str(server.password_file))
    store = open_store(own, job, {})

    def forget() -> None:
        unlink(owned_file(where.server_record), missing_ok=True)
        server.stop()
        with contextlib.suppress(OSError):
            rmdir(owned_file(server.directory))

    return AttachedStore(store, [forget])


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # who keeps the server outlives a terminal that was closed
        click.echo(f"holdfast: {line}", err=True)


def _write_record(where: Paths, server: KeptServer) -> None:
    """Leave word for the other commands. Holds no secret, only where it lies."""
    record = {"url": server.url, "user": "", "password_file": str(server.password_file)}
    temporary = where.server_record.with_suffix(f".{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
        json.dump(record, file)
    temporary.replace(where.server_record)


# Watching a job through its ranks' pages, as the sidecar does, and telling it on the console.

ENDINGS = (signal.SIGTERM, signal.SIGINT)

HINT = (
    "no rank with hooks has come yet: were the variables of `holdfast attach --environment` set "
    "where the job was started? Without them give --pid or --match"
)


@dataclass(frozen=True)
class AttachedJob:
    """Which job is watched, on which node, and how."""

    job: str
    node: str
    settings: Settings
    stays: bool


def watch_pages(watched: AttachedJob) -> int:
    """Watch the ranks that have hooks, until they have ended; the exit code."""
    where = places(watched.settings.paths, watched.job, watched.node)
    site = Site(watched.job, watched.node, where, watched.settings, attached=True)
    console = Console(say, HINT, time.monotonic())
    return Attachment(site, console, watched.stays).run()


@dataclass
class Attachment:
    """A sidecar that watches pages, and tells on the console what it sees."""

    site: Site
    console: Console
    stays: bool

    def run(self) -> int:
        """Watch until every rank has ended, or told to leave; the exit code."""
        site, where = self.site, self.site.places
        collect_seldom()
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        held = hold_shm(where.shm)
        lock = lock_node(where)
        kept = open_attached_store(site.settings.redis, site.job, where)
        served = None
        try:
            predecessor = await_place(kept.store, site, lock.predecessor)
            served = open_exporter(site.job, site.node, site.settings, where)
            record = SidecarRecord(site.job, site.node, 0, served.address)
            write_record(where.sidecar_record, record)
            desk = open_storage_client(site)
            coordinator = coordinate(site, kept.store, desk, predecessor)
            lock.pass_on(coordinator.incarnation)
            served.exporter.orders = coordinator.orders
            grace_s = site.settings.sidecar.grace_s
            telling = Telling(served.exporter, self.console, self.stays, grace_s)
            loop = assemble(site, coordinator, desk, telling, served.address)
            telling.leave = coordinator.give_way = loop.leave
            leave_on_signal(loop.leave)
            say(f"attached to job {site.job} on node {site.node}; metrics at {served.address}")
            loop.run()
            # What the ranks left; pages of ranks that live stay.
            remove_shared_memory(where.shm, where.lock)
        finally:
            if served is not None:
                served.exporter.close()
            unlink(owned_file(where.sidecar_record), missing_ok=True)
            kept.close()
            lock.release()
            os.close(held)
        if coordinator.refusal:
            raise BadInput(coordinator.refusal)
        return 1 if self.console.is_in_trouble else 0


@dataclass
class Telling:
    """Hands each picture to the metrics page and to the console; leaves when all is over."""

    exporter: Exporter
    console: Console
    stays: bool
    grace_s: float
    leave: Callable[[], object] = lambda: None

    def tell(self, picture: TickState) -> None:
        """One more picture."""
        self.exporter.tell(picture)
        alive = {
            rank: history.look.identity.pid
            for rank, history in picture.ranks.local.items()
            if not history.look.is_gone
        }
        now_s = picture.moment.now_s
        self.console.look(alive, picture.findings, picture.orders.view, now_s)
        if not self.stays and self.console.alone_for_s(now_s) >= self.grace_s:
            self.leave()


def leave_on_signal(leave: Callable[[], object]) -> None:
    """Leave when told to. The signals are blocked already, so that a thread may wait for them.
    Raises BadInput where none can be started: nothing else would end this process."""

    def wait() -> None:
        signal.sigwait(ENDINGS)
        leave()

    start_needed_thread(wait, "signals")


def say(line: str) -> None:
    """One line, with the time."""
    click.echo(f"{time.strftime('%H:%M:%S')} {line}")
