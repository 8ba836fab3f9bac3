"""Listening for wake-ups on a job's channels. They only make things faster: keys are the truth."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import redis
from redis.client import PubSub
from redis.exceptions import RedisError

from holdfast_sidecar.coordination.store import Heard

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

    def __init__(self, client: redis.Redis, channels: Mapping[str, Heard]) -> None:
        self._client = client
        self._channels = channels
        self._listener: PubSub | None = None
        self._lock = threading.Lock()
        self._must_renew = threading.Event()

    def renew(self) -> None:
        """Subscribe anew at the next wait: the connection or the server may have changed."""
        self._must_renew.set()

    def wait(self, timeout_s: float) -> Heard:
        """What may have been written, within this time.

        A new subscription answers at once, since writes before it went unheard. While the server
        is away this only sleeps.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=max(0.0, timeout_s)):
            return Heard.NOTHING
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
                    return Heard.NOTHING
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

    def _subscribe(self) -> Heard:
        self._listener = self._client.pubsub()  # type: ignore[no-untyped-call]
        self._listener.subscribe(*self._channels)
        for _ in self._channels:
            if self._listener.get_message(timeout=CONFIRM_S) is None:
                raise redis.exceptions.TimeoutError("the subscription was not confirmed")
        return Heard.ANYTHING

    def _hear(self, timeout_s: float) -> Heard:
        """One wake-up for however many messages are there: the caller reads everything anyway."""
        assert self._listener is not None
        heard = Heard.NOTHING
        message = self._listener.get_message(timeout=timeout_s)
        while message is not None:
            heard |= self._channels.get(message["channel"], Heard.NOTHING)
            message = self._listener.get_message(timeout=0)
        return heard

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
