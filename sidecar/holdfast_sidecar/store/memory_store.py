"""The store in memory: the twin by which coordination is tested without a server.

It obeys the same contract as Redis, and can be paused, emptied and failed over by a test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from holdfast_sidecar.records.account import MICRO
from holdfast_sidecar.records.codec import incarnation_in
from holdfast_sidecar.store.account import Turn, turned
from holdfast_sidecar.store.protocol import (
    ALL_SECTIONS,
    FOR_LEADERS,
    OPEN_SECTIONS,
    RUNNING_TTL_S,
    Bid,
    Lease,
    Section,
    StoreUnavailable,
    View,
    WakeUp,
)

NOBODY = Lease(0, "")
CHANNELS = (WakeUp.ORDERS, WakeUp.REPORTS)
REMEMBERED_WRITES = 64
"""How far back a failover can lose writes."""


@dataclass
class _Fields:
    """A hash and when it expires, on the server's clock."""

    values: dict[str, str]
    expires_at: float


@dataclass
class _JobKeys:
    """What the server holds of one job."""

    lease: Lease = NOBODY
    lease_until: float = 0.0
    highest: int = 0
    highest_until: float = 0.0
    sections: dict[Section, _Fields] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        """Forget what is over, as a server does."""
        if now >= self.lease_until:
            self.lease = NOBODY
        if now >= self.highest_until:
            self.highest = 0
        for section in [s for s, fields in self.sections.items() if now >= fields.expires_at]:
            del self.sections[section]

    def copy(self) -> _JobKeys:
        """The same content, untouched by later writes."""
        sections = {s: _Fields(dict(f.values), f.expires_at) for s, f in self.sections.items()}
        return replace(self, sections=sections)

    def write(self, section: Section, name: str, value: str | None, now: float) -> None:
        """Set or remove a field; an empty hash does not exist."""
        fields = self.sections.setdefault(section, _Fields({}, now + RUNNING_TTL_S))
        if value is None:
            fields.values.pop(name, None)
        else:
            fields.values[name] = value
        if not fields.values:
            del self.sections[section]


class MemoryServer:
    """What several MemoryStores share. `clock` answers seconds; leases and lifetimes end by it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, _JobKeys] = {}
        self._earlier: list[dict[str, _JobKeys]] = []
        self._is_paused = False
        self._generation = 0
        self._writes = dict.fromkeys(CHANNELS, 0)
        self._changed = threading.Condition()

    def pause(self) -> None:
        """Every call raises StoreUnavailable until `resume`."""
        with self._changed:
            self._is_paused = True

    def resume(self) -> None:
        """Answer again, with everything still there."""
        with self._changed:
            self._is_paused = False

    def empty(self) -> None:
        """Lose every key, as after FLUSHALL: the identity stays."""
        with self._changed:
            self._jobs = {}

    def restart(self) -> None:
        """Lose every key and come back as another run of the server."""
        with self._changed:
            self._jobs = {}
            self._generation += 1

    def fail_over(self, lost_writes: int = 0) -> None:
        """Another server takes over, and has never seen the last writes."""
        with self._changed:
            if lost_writes and self._earlier:
                self._jobs = self._earlier[max(0, len(self._earlier) - lost_writes)]
            self._earlier = []
            self._generation += 1

    @property
    def identity(self) -> str:
        """Changes with a restart or a failover."""
        return f"memory:{self._generation}"

    @contextmanager
    def reading(self, job: str) -> Iterator[tuple[_JobKeys, float]]:
        """The job's keys and the time, with the server to oneself."""
        with self._changed:
            if self._is_paused:
                raise StoreUnavailable("the memory server is paused")
            now = self._clock()
            keys = self._jobs.setdefault(job, _JobKeys())
            keys.expire(now)
            yield keys, now

    @contextmanager
    def writing(self, job: str) -> Iterator[tuple[_JobKeys, float]]:
        """As `reading`, and a failover may lose what is done inside."""
        with self.reading(job) as (keys, now):
            self._earlier = [*self._earlier[1 - REMEMBERED_WRITES :], self._copy()]
            yield keys, now

    def _copy(self) -> dict[str, _JobKeys]:
        return {job: keys.copy() for job, keys in self._jobs.items()}

    def wake(self, channel: WakeUp) -> None:
        """Tell whoever listens on this channel that something changed."""
        with self._changed:
            self._writes[channel] += 1
            self._changed.notify_all()

    def wait(self, heard: dict[WakeUp, int], timeout_s: float) -> dict[WakeUp, int]:
        """How many wake-ups there were; returns at once when they are more than `heard`."""
        with self._changed:
            self._changed.wait_for(lambda: self._count(heard) != heard, timeout_s)
            return self._count(heard)

    def _count(self, channels: Collection[WakeUp]) -> dict[WakeUp, int]:
        return {channel: self._writes[channel] for channel in channels}


class MemoryStore:
    """One job on a MemoryServer. Any thread may call anything."""

    def __init__(
        self, server: MemoryServer, job: str = "job", *, hears_reports: bool = True
    ) -> None:
        self._server = server
        self._job = job
        self._heard = dict.fromkeys(CHANNELS if hears_reports else CHANNELS[:1], 0)

    def campaign(self, candidate: str, lease_s: float, floor: int, deposed: str = "") -> Lease:
        """Renew or take the lease."""
        with self._server.writing(self._job) as (keys, now):
            held = keys.lease
            if held.candidate not in ("", candidate, deposed):
                return held
            keys.lease_until = now + lease_s
            if held.candidate == candidate and held.epoch >= floor:
                return held
            if keys.highest == 0:
                keys.highest_until = now + RUNNING_TTL_S
            keys.highest = max(keys.highest, floor) + 1
            keys.lease = Lease(keys.highest, candidate)
            taken = keys.lease
        self._server.wake(WakeUp.ORDERS)
        return taken

    def resign(self, candidate: str) -> None:
        """Give the lease back if this candidate holds it."""
        with self._server.writing(self._job) as (keys, _):
            if keys.lease.candidate != candidate:
                return
            keys.lease = NOBODY
        self._server.wake(WakeUp.ORDERS)

    def report(self, section: Section, field: str, value: str | None, *, wake: bool = True) -> None:
        """Write or remove an unguarded field; a heartbeat wakes nobody."""
        with self._server.writing(self._job) as (keys, now):
            keys.write(section, field, value, now)
        if wake:
            self._server.wake(_channel(section))

    def report_as(
        self,
        section: Section,
        field: str,
        value: str,
        incarnations: Collection[str],
        *,
        wake: bool = True,
    ) -> str | None:
        """Write an unguarded field, unless somebody else's is there."""
        with self._server.writing(self._job) as (keys, now):
            held = _value(keys, section, field)
            holder = None if held is None else incarnation_in(held)
            if holder and holder not in incarnations:
                return held
            keys.write(section, field, value, now)
        if wake:
            self._server.wake(_channel(section))
        return None

    def claim(
        self, section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        """Write the field if it holds `expected`; answer what it then holds."""
        with self._server.writing(self._job) as (keys, now):
            held = _value(keys, section, field)
            if held != expected:
                return held
            keys.write(section, field, value, now)
        self._server.wake(_channel(section))
        return value

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        """Write or remove a guarded field, while `lease` is in force and `expected` is there."""
        with self._server.writing(self._job) as (keys, now):
            if keys.lease == NOBODY or keys.lease != lease:
                return False
            if _value(keys, section, field) != expected:
                return False
            keys.write(section, field, value, now)
        self._server.wake(_channel(section))
        return True

    def turn_account(self, lease: Lease, turn: Turn) -> Mapping[str, str]:
        """Turn the run's account by this server's clock, while `lease` is in force."""
        with self._server.writing(self._job) as (keys, now):
            if keys.lease == NOBODY or keys.lease != lease:
                return {}
            held = keys.sections.get(Section.ACCOUNT)
            fields = turned({} if held is None else held.values, turn, round(now * MICRO))
            expires_at = now + RUNNING_TTL_S if held is None else held.expires_at
            keys.sections[Section.ACCOUNT] = _Fields(fields, expires_at)
            return dict(fields)

    def read(self, sections: Collection[Section] = OPEN_SECTIONS) -> View:
        """Lease, server and these sections."""
        with self._server.reading(self._job) as (keys, _):
            return View(
                lease=keys.lease,
                server=self._server.identity,
                sections={
                    section: dict(held.values)
                    for section, held in keys.sections.items()
                    if section in sections
                },
            )

    def exchange(
        self, field: str, value: str, bid: Bid, *, wake: bool, instead_of: Collection[str] = ()
    ) -> tuple[Lease, View]:
        """Report on a node, campaign, and read everything."""
        view = self.read(ALL_SECTIONS)
        holder = incarnation_in(view.section(Section.NODES).get(field, ""))
        if holder is not None and holder not in (bid.incarnation, *instead_of):
            return view.lease, view
        self.report(Section.NODES, field, value, wake=wake)
        lease = self.campaign(bid.candidate, bid.lease_s, bid.floor)
        return lease, self.read(ALL_SECTIONS)

    def wait(self, timeout_s: float) -> WakeUp:
        """Sleep until someone wrote, or the time is over."""
        before, self._heard = self._heard, self._server.wait(self._heard, timeout_s)
        heard = WakeUp.NOTHING
        for channel, count in self._heard.items():
            heard |= channel if count != before[channel] else WakeUp.NOTHING
        return heard

    def time(self) -> float:
        """The server's clock."""
        with self._server.reading(self._job) as (_, now):
            return now

    def keep(self, ttl_s: float) -> None:
        """Let every key of the job but the lease expire this long from now."""
        with self._server.writing(self._job) as (keys, now):
            keys.highest_until = now + ttl_s
            for fields in keys.sections.values():
                fields.expires_at = now + ttl_s


def _value(keys: _JobKeys, section: Section, name: str) -> str | None:
    fields = keys.sections.get(section)
    return None if fields is None else fields.values.get(name)


def _channel(section: Section) -> WakeUp:
    return WakeUp.REPORTS if section in FOR_LEADERS else WakeUp.ORDERS
