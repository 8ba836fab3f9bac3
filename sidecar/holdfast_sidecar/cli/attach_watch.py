"""Watching a job through its ranks' pages, as the sidecar does, and telling it on the console."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast_sidecar.cli.attach_console import Console
from holdfast_sidecar.cli.attach_store import open_attached_store
from holdfast_sidecar.config.paths import hold_shm, places
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.export.routes import Exporter
from holdfast_sidecar.export.state import Picture
from holdfast_sidecar.linux.threads import start_needed_thread
from holdfast_sidecar.ranks.ending import remove_shared_memory
from holdfast_sidecar.startup import SidecarRecord, Site, await_place, lock_node, write_record
from holdfast_sidecar.wiring import assemble, collect_seldom, coordinate, open_desk, open_exporter

ENDINGS = (signal.SIGTERM, signal.SIGINT)

HINT = (
    "no rank with hooks has come yet: were the variables of `holdfast attach --environment` set "
    "where the job was started? Without them give --pid or --match"
)


@dataclass(frozen=True)
class Watched:
    """Which job is watched, on which node, and how."""

    job: str
    node: str
    settings: Settings
    stays: bool


def watch_pages(watched: Watched) -> int:
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
            desk = open_desk(site)
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

    def tell(self, picture: Picture) -> None:
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
