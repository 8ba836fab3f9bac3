"""The store on a real server: every call is one script, every failure is StoreUnavailable.

Any thread may call anything; `wait` has a connection of its own (see `wakeups`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import redis
from redis.exceptions import NoScriptError, RedisError

from holdfast_sidecar.coordination import scripts
from holdfast_sidecar.coordination.keys import Keys, Section
from holdfast_sidecar.coordination.store import (
    OPEN_SECTIONS,
    Heard,
    Lease,
    StoreUnavailable,
    View,
)
from holdfast_sidecar.coordination.wakeups import Wakeups


class RedisStore:
    """One job's keys on a Redis-compatible server (7.0 or later; any Valkey).

    The client must decode responses; `connection.open_store` makes one that does. Lost
    connections are replaced at the next call; nothing is retried here, as the caller comes again.
    `hears_reports`: whether reports end a wait, as orders do.
    """

    def __init__(self, client: redis.Redis, job: str, *, hears_reports: bool = True) -> None:
        self._client = client
        self._keys = Keys(job)
        channels = {self._keys.orders: Heard.ORDERS}
        if hears_reports:
            channels[self._keys.reports] = Heard.REPORTS
        self._wakeups = Wakeups(client, channels)

    def campaign(self, candidate: str, lease_s: float, floor: int) -> Lease:
        """Renew or take the lease; it ends by the server's clock."""
        keys = [self._keys.leader, self._keys.epoch, self._keys.orders]
        milliseconds = max(1, round(lease_s * 1000))
        held = self._run(scripts.CAMPAIGN, keys, [candidate, str(milliseconds), str(floor)])
        return parse_lease(held)

    def resign(self, candidate: str) -> None:
        """Give the lease back if this candidate holds it."""
        self._run(scripts.RESIGN, [self._keys.leader, self._keys.orders], [candidate])

    def report(self, section: Section, field: str, value: str | None, *, wake: bool = True) -> None:
        """Write or remove an unguarded field; a heartbeat wakes nobody."""
        arguments = [field] if value is None else [field, value]
        keys = [self._keys.section(section), *([self._keys.channel(section)] if wake else [])]
        self._run(scripts.REPORT, keys, arguments)

    def claim(
        self, section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        """Write the field if it holds `expected`; answer what it then holds."""
        keys = [self._keys.section(section), self._keys.channel(section)]
        held: str | None = self._run(scripts.CLAIM, keys, [field, value, _optional(expected)])
        return held

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        """Write or remove a guarded field, while `lease` is in force and `expected` is there.

        After StoreUnavailable the order may or may not have been done: read again.
        """
        keys = [self._keys.leader, self._keys.section(section), self._keys.channel(section)]
        arguments = [_lease_text(lease), field, _optional(expected), _optional(value)]
        return bool(self._run(scripts.ORDER, keys, arguments))

    def read(self, sections: Collection[Section] = OPEN_SECTIONS) -> View:
        """Lease, server and these sections, at one instant of the server."""
        keys = [self._keys.leader, *(self._keys.section(section) for section in sections)]
        lease, server, *contents = self._run(scripts.READ, keys, [])
        return View(
            lease=parse_lease(lease),
            server=server,
            sections={
                section: dict(zip(flat[::2], flat[1::2], strict=True))
                for section, flat in zip(sections, contents, strict=True)
                if flat
            },
        )

    def wait(self, timeout_s: float) -> Heard:
        """Sleep until someone wrote, or the time is over; never raises, `read` will tell."""
        return self._wakeups.wait(timeout_s)

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

    def _run(self, script: scripts.Script, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        try:
            try:
                return self._client.evalsha(script.digest, len(keys), *keys, *arguments)
            except NoScriptError:  # a server that was restarted or failed over has not seen it yet
                return self._client.eval(script.text, len(keys), *keys, *arguments)
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        # Where a call fails, the subscription may be on a server that stays silent for ever.
        self._wakeups.renew()
        return StoreUnavailable(f"{type(error).__name__}: {error}")


def parse_lease(text: str) -> Lease:
    """The lease in the leader key's `epoch candidate`; an absent key is nobody's."""
    epoch, _, candidate = text.partition(" ")
    return Lease(int(epoch), candidate) if epoch.isdecimal() else Lease(0, "")


def _lease_text(lease: Lease) -> str:
    return f"{lease.epoch} {lease.candidate}"


def _optional(value: str | None) -> str:
    """Absent is told from empty: '' against '='."""
    return "" if value is None else f"={value}"
