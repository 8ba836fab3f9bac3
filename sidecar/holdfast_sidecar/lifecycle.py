"""How a sidecar outlives its launcher: it reports, clears up, and leaves after a grace."""

from __future__ import annotations

import logging
import os
import secrets
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.contract.identity import ProcessIdentity, read_identity
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast_sidecar.checkpoint.directory import checkpoint_url
from holdfast_sidecar.checkpoint.writer.client import StorageRequests
from holdfast_sidecar.checkpoint.writer.requests import Seal, WriteParts
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.checkpoint_choice import (
    ABOUT_NUMBERS,
    first_that_counts,
    onset_of,
    trusted_now,
)
from holdfast_sidecar.policy.checkpoint_order import last_step, newest_held, writers_of
from holdfast_sidecar.ranks.ending import (
    ActionRunner,
    end_leftovers,
    find_leftovers,
    has_new_owner,
    read_statuses,
    remove_shared_memory,
    unowned,
)
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    LedgerEntry,
    SavedPart,
    SnapshotReport,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.embedded import remove_files
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

log = logging.getLogger(__name__)


# Why a sidecar that may leave stays, in a file that its launcher reads, and what it says last.


@dataclass(frozen=True)
class Stay:
    """A reason, and for how long it holds at most."""

    words: str
    most_s: float
    gives_way: bool
    """A launcher that is about to be killed does not wait for this."""


WRITING = Stay("a checkpoint is being written", 60.0, gives_way=False)
"""A launcher waits for this, and a machine's shutdown is seldom longer; ten times what a snapshot
of a few gigabytes takes to a local disk."""

TELLING = Stay("the next scrape is to hear of the end", 20.0, gives_way=True)
"""For a Prometheus to come by and hear how the run ended: an interval of 15 s, and some."""

_LAST = "last: "


def write_stay(path: Path, stay: Stay) -> None:
    """Leave word. Raises OSError."""
    path.write_text(stay.words, encoding="utf-8")


def read_stay(path: Path) -> Stay | None:
    """What is left there; None: nothing, or nothing that is understood."""
    try:
        words = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return next((stay for stay in (WRITING, TELLING) if stay.words == words), None)


def write_last_word(path: Path, line: str) -> None:
    """Leave what people at the console are to hear of what was waited for. Raises OSError."""
    path.write_text(_LAST + line, encoding="utf-8")


def read_last_word(path: Path) -> str:
    """What was left so; empty: nothing."""
    try:
        words = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    return words.removeprefix(_LAST) if words.startswith(_LAST) else ""


# What keeps a sidecar that may leave: a checkpoint on its way; of a job whose one launcher died,
# the newest snapshot; a Prometheus that has yet to hear how the run ended.
#
# In the second case nobody is left to agree with (a single node's Redis died with the launcher):
# all ranks were this node's, so their sidecar seals what they left.


@dataclass
class ShutdownBlockers:
    """Keeps a sidecar that may leave, for as long as there is something to write down."""

    node: str
    shm: str
    settings: Settings
    desk: StorageRequests
    marker: Path
    """Lies there while this sidecar stays only to write or to tell: its launcher then waits, and
    says for what."""
    summons: Path | None = None
    """Lies there once this node's launcher was told to end; None: there is no launcher of ours."""
    new_identifier: Callable[[], str] = lambda: secrets.token_hex(4)
    is_awaited: Callable[[float], bool] = lambda now_s: False
    """Whether a Prometheus is expected that has not heard of the end (monotonic time)."""
    _since_s: float | None = None
    _is_hurried: bool = False
    _is_told_to_end: bool = False
    _order: CheckpointOrder | None = None
    _plan: Plan | None = None
    _part: SavedPart | None = None
    _is_over: bool = field(default=False)
    _last_word: str = ""

    def hurry(self) -> None:
        """Nobody waits any more until the end was heard. From another thread."""
        self._is_hurried = True

    def keeps(self, orders: Orders, now_s: float) -> bool:
        """Whether this sidecar must stay, now that it may leave. `now_s` is monotonic."""
        if self._since_s is None:
            self._since_s = now_s
        is_shipping = self._order is not None and not self._is_over
        order = orders.checkpoint
        if orders.store_up and order is not None and order.state == "writing":
            is_shipping = True
        stayed_s = now_s - self._since_s
        stay = None
        if is_shipping and stayed_s < WRITING.most_s:
            stay = WRITING
        elif stayed_s < TELLING.most_s and self._has_last_words(orders) and self.is_awaited(now_s):
            stay = TELLING
        self._mark(stay, "" if order is None else order.trouble)
        return stay is not None

    @property
    def is_told_to_end(self) -> bool:
        """Whether this node's launcher was: by a person, or by a scheduler."""
        if not self._is_told_to_end and self.summons is not None:
            self._is_told_to_end = self.summons.exists()
        return self._is_told_to_end

    def _has_last_words(self, orders: Orders) -> bool:
        """The leader of a run that is over, or any node whose launcher was told to end."""
        if self._is_hurried:
            return False
        if self.is_told_to_end:
            return True
        plan = orders.plan
        is_over = plan is not None and plan.state in TERMINAL
        return is_over and orders.store_up and orders.is_leader

    def _mark(self, stay: Stay | None, trouble: str) -> None:
        """Say what is waited for; at the end, what came of a checkpoint that was waited for."""
        try:
            if trouble and stay is not WRITING and read_stay(self.marker) == WRITING:
                self._last_word = trouble
            if stay is None and self._last_word:
                write_last_word(self.marker, self._last_word)
            elif stay is None:
                unlink(owned_file(self.marker), missing_ok=True)
            elif read_stay(self.marker) != stay:
                log.info("staying: %s", stay.words)
                write_stay(self.marker, stay)
        except OSError as error:
            log.warning("the launcher can't be told whether to wait: %s", error)

    def rescue(
        self, orders: Orders, snapshot: SnapshotReport | None, ranks: Sequence[RankReport]
    ) -> None:
        """The launcher is dead: write down and seal the newest snapshot, a bit at every tick."""
        if self._is_over:
            return
        try:
            if self._order is None:
                self._begin(orders, snapshot, ranks)
            if self._order is not None and self._plan is not None:
                self._go_on(self._order, self._plan)
        except OSError as error:
            log.warning("the newest snapshot could not be written down: %s", error)
            self._is_over = True

    def _begin(
        self, orders: Orders, snapshot: SnapshotReport | None, ranks: Sequence[RankReport]
    ) -> None:
        plan = orders.plan
        if plan is None or snapshot is None or not self._is_alone(plan):
            self._is_over = plan is not None and not self._is_alone(plan)
            return
        below = trusted_now(plan, ranks, onset_of(ranks))
        below = 0 if plan.cause in ABOUT_NUMBERS else below
        step = newest_held(plan.world_size, snapshot.held, below)
        saved = last_step(_ledger(orders), plan, {rank.rank: rank for rank in ranks})
        if step <= saved:
            self._is_over = True
            return
        identifier = self.new_identifier()
        self._plan = plan
        self._order = CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=plan.epoch,
            step=step,
            path=checkpoint_url(self.settings.checkpoint, step, identifier),
            state="writing",
            deadline_s=0.0,
            mode="snapshot",
            trigger="failure",
            writers=writers_of(plan),
            since=first_that_counts(plan),
        )
        log.warning("the launcher is gone: the snapshot of step %d is written down", step)

    def _go_on(self, order: CheckpointOrder, plan: Plan) -> None:
        if self._part is None:
            made = self.desk.ask(WriteParts(order, list(range(plan.world_size)), self.shm))
            if made is None:
                return
            self._part = SavedPart(order.identifier, files=made.files, seconds=made.seconds)
        sealed = self.desk.ask(Seal(order, plan, [self._part]))
        if sealed is not None:
            log.warning("checkpoint %s of step %d is complete", order.identifier, order.step)
            self._is_over = True

    def _is_alone(self, plan: Plan) -> bool:
        """Whether every rank of a job that has not ended was this node's, and it may act."""
        return (
            plan.state not in TERMINAL
            and {member.node for member in plan.members} == {self.node}
            and bool(self.settings.checkpoint.dir)
            and self.settings.sidecar.mode == "act"
        )


def _ledger(orders: Orders) -> list[LedgerEntry]:
    if orders.view is None:
        return []
    texts = orders.view.section(Section.LEDGER).values()
    return [entry for text in texts if (entry := decode(LedgerEntry, text)) is not None]


# Watches the launcher of this node: the very process, not whoever has its pid later.


@dataclass(frozen=True)
class LauncherWatch:
    """A launcher held by pidfd; `pidfd` None: there is none to watch, or it is gone already."""

    pid: int
    pidfd: int | None

    def is_alive(self) -> bool:
        """Whether it still runs. Without a launcher to watch (pid 0) none is missing."""
        if self.pid == 0:
            return True
        if self.pidfd is None:
            return False
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of the handle."""
        if self.pidfd is not None:
            os.close(self.pidfd)


def watch_launcher(pid: int, start_ticks: int = 0) -> LauncherWatch:
    """Start watching a process (pid 0: none). With `start_ticks` it must be that very one."""
    if pid == 0:
        return LauncherWatch(0, None)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return LauncherWatch(pid, None)
    identity = read_identity(pid)
    if identity is None or (start_ticks and identity.start_ticks != start_ticks):
        os.close(pidfd)
        return LauncherWatch(pid, None)
    return LauncherWatch(pid, pidfd)


@dataclass
class Shutdown:
    """Watches the launcher and knows when it is time to go."""

    launcher: LauncherWatch
    places: Paths
    grace_s: float
    runner: ActionRunner = field(default_factory=ActionRunner)
    _gone_s: float | None = None
    has_successor: bool = False
    """A new launcher of this job runs on this node; it has a sidecar of its own."""

    def watch(self, now_s: float) -> bool:
        """Whether the launcher lives (or there is none to watch)."""
        if self.launcher.is_alive():
            return True
        if self._gone_s is None:
            log.warning("launcher %d is gone; leaving in %g s", self.launcher.pid, self.grace_s)
            self._gone_s = now_s
        # A new launcher of this job on this node starts a sidecar of its own.
        self.has_successor = has_new_owner(self.places.lock)
        return False

    def is_due(self, now_s: float) -> bool:
        """Whether this sidecar has nothing left to do."""
        if self._gone_s is None:
            return False
        return self.has_successor or now_s - self._gone_s >= self.grace_s

    def sweep(self, dead_ranks: Sequence[ProcessIdentity]) -> None:
        """End what dead ranks left running."""
        self.runner.run("end_leftovers", partial(_end_leftovers, dead_ranks))

    def say(self, dead_ranks: Sequence[ProcessIdentity]) -> None:
        """Clear up for good. A launcher that lives clears up by itself."""
        if self.launcher.is_alive() or self.has_successor:
            return
        self.sweep(dead_ranks)
        self.runner.run("remove_server_files", partial(_remove_server_files, self.places))
        self.runner.run(
            "remove_shared_memory",
            partial(remove_shared_memory, self.places.shm, self.places.lock),
        )


def _end_leftovers(dead_ranks: Sequence[ProcessIdentity]) -> bool:
    return bool(dead_ranks) and end_leftovers(find_leftovers(read_statuses(), dead_ranks))


def _remove_server_files(places: Paths) -> bool:
    """A server of the launcher's own died with it; its record would lead nowhere."""
    with unowned(places.lock) as is_unowned:
        if not is_unowned:
            return False
        if not (remove_files(places.local_server) or remove_files(places.server)):
            return False
        unlink(owned_file(places.server_record), missing_ok=True)
    return True
