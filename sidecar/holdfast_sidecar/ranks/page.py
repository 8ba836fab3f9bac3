"""The rank pages of this node, held open: reading by pread, orders by pwrite, processes by pidfd.

Who a rank's process is gets settled once, when its page is first seen; later signals go through
the handle opened then, so that they can never reach a later process with the same pid.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import logging
import os
import re
import select
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract import page
from holdfast.contract.identity import read_identity
from holdfast.contract.own_directory import is_own_file, open_node
from holdfast.contract.page import Order, OrderKind, ReplyState, parse_reply
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    PeerOrder,
    SnapshotOrder,
    TraceOrder,
)
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)

NAME = re.compile(r"attempt-(\d+)-local-(\d+)\.page")


@dataclass(frozen=True)
class RankPage:
    """One rank's open page and, where the process can be seen from here, a handle on it."""

    path: Path
    descriptor: int
    inode: int
    identity: page.Identity
    pidfd: int | None

    def read(self) -> bytes:
        """The whole page as it is now; records may be overtaken while this copies."""
        return os.pread(self.descriptor, page.PAGE_SIZE, 0)

    def read_published(self) -> int:
        """The count of records published, read anew."""
        offset = page.WORDS_OFFSET + 8 * page.Word.PUBLISHED
        return int.from_bytes(os.pread(self.descriptor, 8, offset), "little")

    def read_order(self, kind: page.OrderKind) -> page.Order | None:
        """The order that lies in the page, if any."""
        return page.parse_order(self._slot(kind))[1]

    def write_order(self, order: page.Order) -> None:
        """Put an order in its slot: the body first, the sequence word that announces it last."""
        sequence, _ = page.parse_order(self._slot(order.kind))
        body, word = page.pack_order(order, sequence + 1)
        offset = page.order_offset(order.kind)
        os.pwrite(self.descriptor, body, offset + len(word))
        os.pwrite(self.descriptor, word, offset)

    def is_gone(self) -> bool:
        """Whether the process that claimed this page has ended.

        Without a handle (it died before it was seen, or lives in a pid namespace of its own) the
        lock on the page answers: the kernel frees it with its owner.
        """
        if self.pidfd is not None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            return bool(poll.poll(0))
        return is_unlocked(self.descriptor)

    def close(self) -> None:
        """Let go of the page and the process handle."""
        os.close(self.descriptor)
        if self.pidfd is not None:
            os.close(self.pidfd)

    def _slot(self, kind: page.OrderKind) -> bytes:
        return os.pread(self.descriptor, page.ORDER_SIZE, page.order_offset(kind))


def is_unlocked(descriptor: int) -> bool:
    """Whether nobody holds the file's lock. Takes a shared lock for an instant to find out."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def open_page(
    path: Path, tell_foreign: Callable[[int], None] = lambda version: None
) -> RankPage | None:
    """Open a page and its process; None when it is not (or no longer) a page. tell_foreign: told
    the version of one that another Holdfast laid out."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        folder = open_node(path.parent)
    except OSError:
        return None
    try:
        descriptor = os.open(path.name, flags, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    facts = os.fstat(descriptor)
    if not is_own_file(facts, os.geteuid()):
        os.close(descriptor)
        return None
    head = os.pread(descriptor, page.WORDS_OFFSET, 0) if stat.S_ISREG(facts.st_mode) else b""
    identity = page.parse_identity_zone(head) if facts.st_size == page.PAGE_SIZE else None
    if identity is None:
        version = page.foreign_version(head)
        # What an earlier run left behind is nobody's.
        if version is not None and not is_unlocked(descriptor):
            tell_foreign(version)
        os.close(descriptor)
        return None
    pidfd = open_process(identity.pid, identity.start_ticks)
    return RankPage(path, descriptor, facts.st_ino, identity, pidfd)


def open_process(pid: int, start_ticks: int) -> int | None:
    """A pidfd of exactly this process; None when it is gone, or another user's.

    The start time is compared after opening: what the descriptor holds can't be replaced any more.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, PermissionError, ValueError):
        return None
    identity = read_identity(pid)
    is_it = identity is not None and identity.start_ticks == start_ticks
    if not is_it or read_user(pid) != os.geteuid():
        os.close(pidfd)
        return None
    return pidfd


def read_user(pid: int) -> int | None:
    """The user whose a process is; None when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    (real, *_) = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    return int(real)


@dataclass
class Pages:
    """The pages of the newest attempt in one directory.

    Newest is whoever claimed last, not the highest number: pages of an earlier run of the same job
    may still lie here, and its attempts may have counted further.
    """

    directory: Path
    _open: dict[str, RankPage] = field(default_factory=dict)
    _superseded: set[tuple[str, int]] = field(default_factory=set)
    _foreign: set[tuple[str, int]] = field(default_factory=set)
    """Of another version, which was said."""
    _refused: bool = False
    """The directory is not ours alone, which was said."""

    def refresh(self) -> list[RankPage]:
        """Look at the directory again and answer the open pages by local rank."""
        present = self._list()
        for name in [name for name, held in self._open.items() if present.get(name) != held.inode]:
            self._open.pop(name).close()
        self._superseded &= set(present.items())
        self._foreign &= set(present.items())
        for name, inode in present.items():
            if name not in self._open and (name, inode) not in self._superseded:
                say = functools.partial(self._say_foreign, name, inode)
                opened = open_page(self.directory / name, say)
                if opened is not None:
                    self._open[name] = opened
        self._drop_older_attempts()
        return self.held()

    def held(self) -> list[RankPage]:
        """The pages open since the last refresh, by local rank."""
        return sorted(self._open.values(), key=lambda held: held.identity.local_rank)

    def close(self) -> None:
        """Close every page."""
        for held in self._open.values():
            held.close()
        self._open.clear()

    def _list(self) -> dict[str, int]:
        try:
            folder = open_node(self.directory)
        except FileNotFoundError:
            return {}
        except OSError as error:
            if not self._refused:
                logger.warning("no rank here is watched: %s", error)
            self._refused = True
            return {}
        try:
            with os.scandir(folder) as entries:
                return {
                    entry.name: entry.inode() for entry in entries if NAME.fullmatch(entry.name)
                }
        finally:
            os.close(folder)

    def _say_foreign(self, name: str, inode: int, version: int) -> None:
        if (name, inode) not in self._foreign:
            self._foreign.add((name, inode))
            logger.warning(
                "the rank of %s is not watched: it has another version of Holdfast than its"
                " sidecar (its page has layout %d, not %d); install the same one in both",
                name,
                version,
                page.VERSION,
            )

    def _drop_older_attempts(self) -> None:
        if not self._open:
            return
        newest = max(self._open.values(), key=lambda held: held.identity.claimed_ns)
        for name, held in list(self._open.items()):
            if held.identity.attempt != newest.identity.attempt:
                self._superseded.add((name, held.inode))
                self._open.pop(name).close()


# Writes orders into the pages of this node's ranks: a checkpoint, snapshots, a trace, stop.
#
# Only pages of the attempt that the order names get it, and each order is written once per page.

ALWAYS_NS = 2**63 - 1
"""The deadline of an order that stands until another replaces it."""


def arm_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Arm a coordinated checkpoint; whether any page was written. `now_ns` is CLOCK_MONOTONIC."""
    if order.state != "armed" or order.writers:
        return False  # with writers it is of a snapshot that exists: no rank has to do anything
    wanted = Order(
        kind=OrderKind.CHECKPOINT,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=now_ns + int(order.deadline_s * 1e9),
        identifier=order.identifier,
        slots=int(order.mode == "snapshot"),
    )
    return write_to_pages(wanted, pages)


def withdraw_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage]) -> bool:
    """Take an order back where it lies: a void one, so that no rank goes to its step and waits
    there; one whose snapshots are written, so that the ranks let go of their slots."""
    is_done = order.state == "complete" and order.mode == "snapshot"
    if order.state != "void" and not is_done:
        return False
    withdrawn = False
    for held in pages:
        present = held.read_order(OrderKind.CHECKPOINT)
        if present is None or present.identifier != order.identifier or present.is_withdrawn:
            continue
        held.write_order(dataclasses.replace(present, deadline_ns=0))
        withdrawn = True
    return withdrawn


def arm_trace(order: TraceOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Have those ranks trace that are meant; whether any page was written. `now_ns` is
    CLOCK_MONOTONIC."""
    if order.state != "armed":
        return False
    wanted = Order(
        kind=OrderKind.TRACE,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=now_ns + int(order.deadline_s * 1e9),
        identifier=order.identifier,
        every=order.steps,
    )
    return write_to_pages(wanted, [held for held in pages if held.identity.rank in order.ranks])


def withdraw_trace(order: TraceOrder | None, pages: Iterable[RankPage]) -> bool:
    """Take back where it lies what is not, or no longer, to be traced; whether any page was
    written."""
    wanted = order.identifier if order is not None and order.state == "armed" else ""
    withdrawn = False
    for held in pages:
        present = held.read_order(OrderKind.TRACE)
        if present is not None and present.identifier != wanted and not present.is_withdrawn:
            held.write_order(dataclasses.replace(present, deadline_ns=0))
            withdrawn = True
    return withdrawn


def order_snapshots(
    order: SnapshotOrder, pages: Iterable[RankPage], slots: int, slots_made: str
) -> bool:
    """Tell ranks how often to take snapshots, into how many slots; whether any page was written.

    slots_made: a name for the slots as they are: ranks look at them again when it is another one.
    """
    every = order.every_steps if slots > 1 else 0
    wanted = Order(
        kind=OrderKind.SNAPSHOT,
        attempt=order.attempt,
        epoch=order.epoch,
        step=0,
        deadline_ns=ALWAYS_NS,
        identifier=f"{every}-{slots}-{slots_made}",
        every=every,
        slots=slots,
    )
    return write_to_pages(wanted, pages)


def order_stop(plan: Plan, pages: Iterable[RankPage], now_ns: int, grace_s: float) -> bool:
    """Ask the ranks of a stopped job to leave at their next step boundary."""
    if plan.state != "stopped":
        return False
    wanted = Order(
        kind=OrderKind.STOP,
        attempt=plan.attempt,
        epoch=plan.epoch,
        step=0,
        deadline_ns=now_ns + int(grace_s * 1e9),
        identifier=f"stop-{plan.attempt}",
    )
    return write_to_pages(wanted, pages)


def _replaces(wanted: Order, present: Order) -> bool:
    """A page's order gives way to another one of the same or a later leader."""
    return wanted.identifier != present.identifier and wanted.epoch >= present.epoch


def write_to_pages(
    wanted: Order,
    pages: Iterable[RankPage],
    replaces: Callable[[Order, Order], bool] = _replaces,
) -> bool:
    """Write an order where it is of the page's attempt, not a stale leader's, and `replaces` (the
    wanted, the present) what stands there; whether any page was written."""
    written = False
    for held in pages:
        if held.identity.attempt != wanted.attempt or wanted.epoch < held.identity.epoch:
            continue
        present = held.read_order(wanted.kind)
        if present is not None and not replaces(wanted, present):
            continue
        held.write_order(wanted)
        written = True
    return written


# Writes peer orders into the pages of this node's ranks, and reads how far the ranks got.

FAILED = frozenset({ReplyState.MISSED, ReplyState.LEFT, ReplyState.VOID, ReplyState.FAILED})


def arm_peer(order: PeerOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Have ranks hold what other nodes copy: the armed step, and always the one that is through.

    Whether any page was written. `now_ns` is CLOCK_MONOTONIC.
    """
    if order.state == "standing":
        return False  # every snapshot is meant; a rank's last two are its copies' last two
    deadline_ns = now_ns + int(order.deadline_s * 1e9) if order.state == "armed" else 0
    wanted = Order(
        kind=OrderKind.PEER,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=deadline_ns,
        identifier=order.identifier,
        keeps=order.through + 1,
    )
    return write_to_pages(wanted, pages, _replaces_peer_order)


def _replaces_peer_order(wanted: Order, present: Order) -> bool:
    """Not a stale leader's, and saying something new (the deadline, once set, stays)."""
    if present.is_withdrawn == wanted.is_withdrawn:
        wanted = dataclasses.replace(wanted, deadline_ns=present.deadline_ns)
    return wanted.epoch >= present.epoch and wanted != present


def read_copied(order: PeerOrder, pages: Iterable[RankPage]) -> tuple[dict[str, str], int]:
    """Identifier -> `copied` once all these ranks hold what was armed, `void` if one can't; and the
    boundary at which they copied it, -1 before."""
    if order.state != "armed":
        return {}, -1
    replies = [parse_reply(held.read(), OrderKind.PEER) for held in pages]
    states = [
        ReplyState.NONE if reply is None or reply.identifier != order.identifier else reply.state
        for reply in replies
    ]
    if any(state in FAILED for state in states):
        return {order.identifier: "void"}, -1
    if not states or any(state is not ReplyState.COPIED for state in states):
        return {}, -1
    steps = {reply.step for reply in replies if reply is not None}
    if len(steps) > 1:
        return {order.identifier: "void"}, -1
    return {order.identifier: "copied"}, min(steps)
