"""Prometheus and Alertmanager as children: on a free port of loopback, and gone with us."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path

from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.linux.process import die_with

READY_S = 20.0
"""Measured: ready within half a second; the rest is for a machine under load."""
END_WITHIN_S = 10.0
PORT_ATTEMPTS = 3
"""A free port may be taken by someone else before the program binds it."""


@dataclass(frozen=True)
class Daemon:
    """One that runs."""

    name: str
    address: str
    """host:port."""
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def url(self) -> str:
        """For people, and for questions."""
        return f"http://{self.address}"

    def has_ended(self) -> bool:
        """Whether it is gone, by itself or not."""
        return self.process.poll() is not None

    def check(self) -> None:
        """DemonstrationStopped where it has ended by itself: nobody could be paged then."""
        if self.has_ended():
            raise DemonstrationStopped(f"{self.name} has ended by itself", self.log)

    def end(self) -> None:
        """Let it go, and wait for that."""
        self.process.terminate()
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(name: str, command_at: Callable[[str], Sequence[str]], log: Path) -> Daemon:
    """Start it and wait until it is ready. DemonstrationStopped when it does not get so far.

    command_at: host:port -> command line. Call it from a thread that lives as long as the program
    shall: the kernel ends it with that thread.
    """
    for _ in range(PORT_ATTEMPTS):
        address = f"127.0.0.1:{free_port()}"
        daemon = Daemon(name, address, log, _launch(command_at(address), log))
        if _becomes_ready(daemon):
            return daemon
        daemon.end()
    raise DemonstrationStopped(f"{name} does not start", log)


def prometheus_command(program: str, folder: Path, resend_s: float, address: str) -> list[str]:
    """With prometheus.yml and its data in this folder; what still fires is said again so often."""
    return [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--rules.alert.resend-delay={round(1000 * resend_s)}ms",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]


def alertmanager_command(program: str, folder: Path, address: str) -> list[str]:
    """With alertmanager.yml and its data in this folder; it looks for no others of its kind."""
    return [
        program,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager-data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]


def fetch(url: str, timeout_s: float = 5.0) -> bytes:
    """What an address of this machine answers, whatever proxy is set for others. OSError or
    HTTPException where it does not."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=timeout_s) as answer:
        body: bytes = answer.read()
        return body


def _launch(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it through us
            preexec_fn=partial(die_with, os.getpid()),
        )


def _becomes_ready(daemon: Daemon) -> bool:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and not daemon.has_ended():
        with suppress(OSError, HTTPException):
            fetch(f"{daemon.url}/-/ready", timeout_s=1.0)
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """One of loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
