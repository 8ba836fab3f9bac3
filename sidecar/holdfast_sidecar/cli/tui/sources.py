"""A job's view from its sidecars: one of this machine, or the leader that it names."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from holdfast_sidecar.cli.tui.http_client import (
    Access,
    AccessRefused,
    Away,
    MemorySource,
    ViewReply,
    ViewSource,
    ask,
)
from holdfast_sidecar.cli.tui.state import Latest
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.controller.fence import HeartbeatTimes
from holdfast_sidecar.export.live.build import of_store
from holdfast_sidecar.export.live.context import PATIENCE_S
from holdfast_sidecar.export.live.packing import from_plain, pack, unpack
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.store.protocol import Store, StoreUnavailable, View

LEFT_ALONE = 30
"""For so many views a leader is not tried again that could not be reached: where its port is closed
to us, each trial may take the whole time that an answer may."""


@dataclass
class SidecarSource:
    """Asks whoever answered last; where that is over, everybody who can be found now.

    A sidecar that was restarted listens on another port, so addresses are looked up again.
    """

    job: str
    """Whose sidecars; empty: of whichever job they are that are found."""
    find: Callable[[], Sequence[str]]
    """Addresses of sidecars to ask, the best one first. Away where nobody can be found."""
    access: Access = field(default_factory=Access)
    asked: ViewReply = ask
    here: Callable[[], Collection[str]] = tuple
    """Addresses that this machine itself knows its own by. Another machine's loopback address, as
    Redis has it, is anybody's on this one."""
    _near: str = ""
    """Who answered last."""
    _leader: str = ""
    """Who leads and answered last; it knows more than the others."""
    _missed: str = ""
    """Who leads and could not be reached..."""
    _views_until_tried: int = 0
    """...and when it is tried again."""

    @property
    def name(self) -> str:
        """Who is asked."""
        return f"a sidecar of job {self.job}" if self.job else "a sidecar"

    def read(self) -> LiveView:
        """The leader's view, else that of any other of the job's sidecars."""
        view = self._told_if_it_can(self._leader) if self._leader else None
        if view is not None and view.is_leader:
            return view
        self._leader = ""
        return self._leaders(self._nearest())

    def _nearest(self) -> LiveView:
        trouble = Away("no sidecar of the job is known")
        for address in self._addresses():
            try:
                view = self._told(address)
            except Away as error:
                trouble = error
                continue
            self._near = address
            return view
        self._near = ""
        raise trouble

    def _addresses(self) -> Iterator[str]:
        if self._near:
            yield self._near
        yield from (address for address in self.find() if address != self._near)

    def _leaders(self, near: LiveView) -> LiveView:
        """What the leader says, if it can be reached from here. Behind a loopback address of its
        machine somebody else may listen on ours: so it has to say who it is."""
        address = near.leader_address
        if near.is_leader or not address or not self._is_worth_a_trial(address):
            return near
        view = self._told_if_it_can(address)
        if view is None or not view.is_leader or not _is_leader_of(near, view):
            self._missed, self._views_until_tried = address, LEFT_ALONE
            return near
        self._leader = address
        return view

    def _is_worth_a_trial(self, address: str) -> bool:
        """Not what was missed a moment ago; and a token shown under TLS is not shown without."""
        self._views_until_tried -= 1
        if self._near.startswith("https://") and not address.startswith("https://"):
            return False
        return address != self._missed or self._views_until_tried < 0

    def _told_if_it_can(self, address: str) -> LiveView | None:
        try:
            return self._told(address)
        except (Away, BadInput):
            return None

    def _told(self, address: str) -> LiveView:
        view = self.asked(address, self._access_to(address))
        if self.job and view.run != self.job:
            raise AccessRefused(f"{address} is a sidecar of job {view.run!r}, not of {self.job!r}")
        return view

    def _access_to(self, address: str) -> Access:
        if not self.access.token_file or address.startswith("https://"):
            return self.access
        return replace(self.access, only_secured=address not in self.here())


def _is_leader_of(near: LiveView, view: LiveView) -> bool:
    return (view.run, view.node) == (near.run, near.leader_node)


# A job's view from its store alone, where no sidecar can be reached from here: who is slow when,
# only sidecars know, and whose heartbeat moves is known only after a while.


@dataclass
class StoreSource:
    """Reads everything about the job, every time."""

    job: str
    store: Store
    where: str
    """The server, without secrets."""
    clock: Callable[[], float] = time.time
    _times: HeartbeatTimes = field(default_factory=HeartbeatTimes)
    _began_unix_s: float | None = None

    @property
    def name(self) -> str:
        """Who is asked."""
        return f"Redis at {self.where}"

    def read(self) -> LiveView:
        """What the store holds now."""
        try:
            held = self.store.read()
        except StoreUnavailable as error:
            raise Away(f"Redis at {self.where} does not answer: {error}") from None
        now_unix_s = self.clock()
        view = of_store(self.job, held, now_unix_s, self._heartbeats(held, now_unix_s))
        # As a sidecar would tell it: without figures that are no numbers, which JSON can't say.
        return unpack(pack(view)) or view

    def _heartbeats(self, held: View, now_unix_s: float) -> dict[str, float]:
        """Those that were seen to move, or waited for in vain: at first sight all look alike."""
        if self._began_unix_s is None:
            self._began_unix_s = now_unix_s
        seen, began_unix_s = self._times.seen(held, now_unix_s), self._began_unix_s
        was_patient = now_unix_s - began_unix_s >= PATIENCE_S
        return {node: at for node, at in seen.items() if at > began_unix_s or was_patient}


# Views from a file: one JSON object a line, as `holdfast top --json` prints them, or as a sidecar
# serves them.


def replay(path: Path) -> MemorySource:
    """The views in a file, in their order; BadInput where it has none."""
    try:
        views = list(parse_views(path.read_text(encoding="utf-8", errors="replace")))
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from None
    if not views:
        raise BadInput(
            f"{path} holds no view: record some with `holdfast top --json >> {path}`, a line each"
        )
    return MemorySource(views, name=f"the recording {path.name}")


def parse_views(text: str) -> Iterator[LiveView]:
    """Every line that is one."""
    for line in text.split("\n"):
        view = parse_view(line)
        if view is not None:
            yield view


def parse_view(line: str) -> LiveView | None:
    """The view in a line; None when it is none."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    heat = told.get("heat") if isinstance(told, dict) else None
    rows = heat.get("rows") if isinstance(heat, dict) else None
    is_packed = isinstance(rows, dict) and any(isinstance(row, str) for row in rows.values())
    return unpack(line.encode()) if is_packed else from_plain(told)


# What is known of a job: its newest view, and since when nobody tells a newer one. Pure.


# Asks a source again and again in a thread of its own, so that keys work while nobody answers.


class SourceState(Protocol):
    """What a screen needs to know of it."""

    @property
    def latest(self) -> Latest:
        """What is known by now."""


def look(source: ViewSource, before: Latest, now_s: float) -> Latest:
    """What is known after asking once more."""
    try:
        return before.answered(source.read(), source.name)
    except (Away, BadInput) as error:
        return before.unanswered(str(error), now_s)


@dataclass
class SourceWatch:
    """Between `start` and `stop`, `latest` is as new as the source allows."""

    source: ViewSource
    every_s: float
    latest: Latest = field(default_factory=Latest)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask. The thread holds up nothing at the end: a source may take seconds."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _run(self) -> None:
        if self.latest.view is not None:
            self._stopped.wait(self.every_s)  # it has just been asked
        while not self._stopped.is_set():
            self.latest = look(self.source, self.latest, time.monotonic())
            self._stopped.wait(self.every_s)
