"""A real Redis-compatible server on a Unix socket, for one job or one measurement."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import redis

from bench.benchmark import NotRun
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.store.embedded import find_binary

START_LIMIT_S = 10.0


class RedisServer:
    """Started by the constructor's caller, stopped by `stop`; keeps nothing on disk."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(directory)]
        self.process = subprocess.Popen(
            [_binary(), *options, "--save", "", "--appendonly", "no"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    @property
    def url(self) -> str:
        """As `holdfast run --redis` takes it."""
        return f"unix://{self.socket}"

    def client(self) -> redis.Redis:
        """A connection of its own."""
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)

    def stop(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait(timeout=10)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            try:
                if self.client().ping():
                    return
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.02)
        self.stop()
        raise NotRun(f"the Redis-compatible server did not answer within {START_LIMIT_S:g} s")


def _binary() -> Path:
    try:
        return find_binary().path
    except BadInput as reason:
        raise NotRun(str(reason)) from None
