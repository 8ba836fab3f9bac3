"""The store on a real server: every call is one script, every failure is StoreUnavailable.

Any thread may call anything; `wait` has a connection of its own (see `wakeups`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.client import PubSub
from redis.exceptions import NoScriptError, RedisError

from holdfast_sidecar.store import scripts
from holdfast_sidecar.store.account import Turn
from holdfast_sidecar.store.protocol import (
    ALL_SECTIONS,
    OPEN_SECTIONS,
    Bid,
    Keys,
    Lease,
    Section,
    StoreUnavailable,
    View,
    WakeUp,
)

# Listening for wake-ups on a job's channels. They only make things faster: keys are the truth.

RETRY_S = 0.1
"""Pause between attempts to subscribe while the server is away: short beside a heartbeat."""

CONFIRM_S = 1.0
"""A subscription not confirmed in this time is given up: the server is paused or gone."""

LOOK_S = 1.0
"""How often a long wait looks whether it must subscribe anew."""


class Wakeups:
    """A subscription with a connection of its own.

    One thread listens at a time; a second one that waits gets its turn after the first.
    """

    def __init__(self, client: redis.Redis, channels: Mapping[str, WakeUp]) -> None:
        self._client = client
        self._channels = channels
        self._listener: PubSub | None = None
        self._lock = threading.Lock()
        self._must_renew = threading.Event()

    def renew(self) -> None:
        """Subscribe anew at the next wait: the connection or the server may have changed."""
        self._must_renew.set()

    def wait(self, timeout_s: float) -> WakeUp:
        """What may have been written, within this time.

        A new subscription answers at once, since writes before it went unheard. While the server
        is away this only sleeps.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=max(0.0, timeout_s)):
            return WakeUp.NOTHING
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                try:
                    if self._needs_subscription():
                        return self._subscribe()
                    if heard := self._hear(min(left, LOOK_S)):
                        return heard
                except (RedisError, OSError):
                    self._drop()
                    time.sleep(min(RETRY_S, left))
                if time.monotonic() >= deadline:
                    return WakeUp.NOTHING
        finally:
            self._lock.release()

    def close(self) -> None:
        """Give the connection back. Not while another thread waits: it would be cut off."""
        with self._lock:
            self._drop()

    def _needs_subscription(self) -> bool:
        if self._must_renew.is_set():
            self._must_renew.clear()
            self._drop()
        return self._listener is None

    def _subscribe(self) -> WakeUp:
        self._listener = self._client.pubsub()  # type: ignore[no-untyped-call]
        self._listener.subscribe(*self._channels)
        for _ in self._channels:
            if self._listener.get_message(timeout=CONFIRM_S) is None:
                raise redis.exceptions.TimeoutError("the subscription was not confirmed")
        return WakeUp.ANYTHING

    def _hear(self, timeout_s: float) -> WakeUp:
        """One wake-up for however many messages are there: the caller reads everything anyway."""
        assert self._listener is not None
        heard = WakeUp.NOTHING
        message = self._listener.get_message(timeout=timeout_s)
        while message is not None:
            heard |= self._channels.get(message["channel"], WakeUp.NOTHING)
            message = self._listener.get_message(timeout=0)
        return heard

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


@dataclass(frozen=True)
class ScriptCall:
    """One run of a script."""

    script: scripts.Script
    keys: Sequence[str]
    arguments: Sequence[str]


class RedisStore:
    """One job's keys on a Redis-compatible server (7.0 or later; any Valkey).

    The client must decode responses; `connection.open_store` makes one that does. Lost
    connections are replaced at the next call; nothing is retried here, as the caller comes again.
    `hears_reports`: whether reports end a wait, as orders do.
    """

    def __init__(self, client: redis.Redis, job: str, *, hears_reports: bool = True) -> None:
        self._client = client
        self._keys = Keys(job)
        channels = {self._keys.orders: WakeUp.ORDERS}
        if hears_reports:
            channels[self._keys.reports] = WakeUp.REPORTS
        self._wakeups = Wakeups(client, channels)

    def campaign(self, candidate: str, lease_s: float, floor: int, deposed: str = "") -> Lease:
        """Renew or take the lease; it ends by the server's clock."""
        return parse_lease(self._run(self._campaign(Bid(candidate, lease_s, floor), deposed)))

    def resign(self, candidate: str) -> None:
        """Give the lease back if this candidate holds it."""
        keys = [self._keys.leader, self._keys.orders]
        self._run(ScriptCall(scripts.RESIGN, keys, [candidate]))

    def report(self, section: Section, field: str, value: str | None, *, wake: bool = True) -> None:
        """Write or remove an unguarded field; a heartbeat wakes nobody."""
        self._run(self._report(section, field, value, wake))

    def report_as(
        self,
        section: Section,
        field: str,
        value: str,
        incarnations: Collection[str],
        *,
        wake: bool = True,
    ) -> str | None:
        """Write an unguarded field, unless somebody else's is there: its text then."""
        keys = [self._keys.section(section), *([self._keys.channel(section)] if wake else [])]
        arguments = [field, value, " ".join(["", *incarnations, ""])]
        held: str | None = self._run(ScriptCall(scripts.REPORT_AS, keys, arguments))
        return held

    def claim(
        self, section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        """Write the field if it holds `expected`; answer what it then holds."""
        keys = [self._keys.section(section), self._keys.channel(section)]
        arguments = [field, value, _optional(expected)]
        held: str | None = self._run(ScriptCall(scripts.CLAIM, keys, arguments))
        return held

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        """Write or remove a guarded field, while `lease` is in force and `expected` is there.

        After StoreUnavailable the order may or may not have been done: read again.
        """
        keys = [self._keys.leader, self._keys.section(section), self._keys.channel(section)]
        arguments = [_lease_text(lease), field, _optional(expected), _optional(value)]
        return bool(self._run(ScriptCall(scripts.ORDER, keys, arguments)))

    def turn_account(self, lease: Lease, turn: Turn) -> Mapping[str, str]:
        """Turn the run's account by the server's clock, while `lease` is in force.

        After StoreUnavailable it may or may not have been done: read again.
        """
        keys = [self._keys.leader, self._keys.section(Section.ACCOUNT)]
        flat = self._run(ScriptCall(scripts.ACCOUNT_TURN, keys, [_lease_text(lease), turn.spell()]))
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def read(self, sections: Collection[Section] = OPEN_SECTIONS) -> View:
        """Lease, server and these sections, at one instant of the server."""
        return parse_view(self._run(self._read(sections)), sections)

    def exchange(
        self, field: str, value: str, bid: Bid, *, wake: bool, instead_of: Collection[str] = ()
    ) -> tuple[Lease, View]:
        """Report on a node, campaign, and read everything: one script."""
        may_replace = " ".join(["", bid.incarnation, *instead_of, ""])
        campaign, nodes = self._campaign(bid), self._keys.section(Section.NODES)
        keys = [*campaign.keys, self._keys.reports, nodes, *self._sections(ALL_SECTIONS)]
        arguments = [*campaign.arguments, field, value, "1" if wake else "", may_replace]
        lease, read = self._run(ScriptCall(scripts.EXCHANGE, keys, arguments))
        return parse_lease(lease), parse_view(read, ALL_SECTIONS)

    def wait(self, timeout_s: float) -> WakeUp:
        """Sleep until someone wrote, or the time is over; never raises, `read` will tell."""
        return self._wakeups.wait(timeout_s)

    def time(self) -> float:
        """The server's wall clock."""
        try:
            seconds, microseconds = self._client.time()
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return int(seconds) + int(microseconds) / 1e6

    def keep(self, ttl_s: float) -> None:
        """Let every key of the job expire this long from now; the lease has its own lifetime."""
        milliseconds = max(1, round(ttl_s * 1000))
        try:
            pipeline = self._client.pipeline(transaction=False)
            for key in self._keys.all():
                if key != self._keys.leader:
                    pipeline.pexpire(key, milliseconds)
            pipeline.execute()
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the connections; the store can be used again and then opens new ones."""
        self._wakeups.close()
        self._client.close()
        self._client.connection_pool.disconnect()

    def _campaign(self, bid: Bid, deposed: str = "") -> ScriptCall:
        milliseconds = max(1, round(bid.lease_s * 1000))
        return ScriptCall(
            scripts.CAMPAIGN,
            [self._keys.leader, self._keys.epoch, self._keys.orders],
            [bid.candidate, str(milliseconds), str(bid.floor), deposed],
        )

    def _report(self, section: Section, field: str, value: str | None, wake: bool) -> ScriptCall:
        keys = [self._keys.section(section), *([self._keys.channel(section)] if wake else [])]
        return ScriptCall(scripts.REPORT, keys, [field] if value is None else [field, value])

    def _read(self, sections: Collection[Section]) -> ScriptCall:
        return ScriptCall(scripts.READ, [self._keys.leader, *self._sections(sections)], [])

    def _sections(self, sections: Collection[Section]) -> list[str]:
        return [self._keys.section(section) for section in sections]

    def _run(self, call: ScriptCall) -> Any:
        script, count, words = call.script, len(call.keys), (*call.keys, *call.arguments)
        try:
            try:
                return self._client.evalsha(script.digest, count, *words)
            except NoScriptError:  # a server that was restarted or failed over has not seen it yet
                return self._client.eval(script.text, count, *words)
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        # Where a call fails, the subscription may be on a server that stays silent for ever.
        self._wakeups.renew()
        return StoreUnavailable(f"{type(error).__name__}: {error}")


def parse_view(answer: Sequence[Any], sections: Collection[Section]) -> View:
    """What READ answers of these sections."""
    lease, server, *contents = answer
    return View(
        lease=parse_lease(lease),
        server=server,
        sections={
            section: dict(zip(flat[::2], flat[1::2], strict=True))
            for section, flat in zip(sections, contents, strict=True)
            if flat
        },
    )


def parse_lease(text: str) -> Lease:
    """The lease in the leader key's `epoch candidate`; an absent key is nobody's."""
    epoch, _, candidate = text.partition(" ")
    return Lease(int(epoch), candidate) if epoch.isdecimal() else Lease(0, "")


def _lease_text(lease: Lease) -> str:
    return f"{lease.epoch} {lease.candidate}"


def _optional(value: str | None) -> str:
    """Absent is told from empty: '' against '='."""
    return "" if value is None else f"={value}"
