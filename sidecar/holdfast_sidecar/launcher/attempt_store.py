"""The attempt's own TCPStore: fresh for every attempt, so that no key of an earlier one is left.

It listens only on the address that was advertised; torch's default is every interface.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore

from holdfast_sidecar.config.addresses import interface_towards, is_loopback, parse_address
from holdfast_sidecar.linux.threads import start_thread

BACKLOG = 1024
TIMEOUT = timedelta(seconds=300)
"""torch's own default for a key that others set."""

CONNECT_S = 1.0
"""Patience with a store whose host accepts connections, before the plan is looked at: a living one
answers in milliseconds."""


@dataclass(frozen=True)
class Endpoint:
    """Where the store of an attempt listens, and which launcher opened it."""

    incarnation: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.incarnation} {self.host} {self.port}"


def parse_endpoint(text: str | None) -> Endpoint | None:
    """Parse what `str(Endpoint)` wrote; None when it is not that."""
    parts = (text or "").split(" ")
    if len(parts) != 3 or not parts[2].isdecimal():
        return None
    return Endpoint(parts[0], parts[1], int(parts[2]))


def open_store(host: str, port: int = 0) -> TCPStore:
    """Serve a new store on this address; port 0 lets the kernel choose a free one."""
    listener = _listen(host, port)
    return TCPStore(
        host,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=TIMEOUT,
        master_listen_fd=listener.detach(),
    )


def is_reachable(endpoint: Endpoint, timeout_s: float) -> bool:
    """Whether the store answers; tried first, because TCPStore itself would wait for minutes."""
    with contextlib.suppress(OSError):
        socket.create_connection((endpoint.host, endpoint.port), timeout_s).close()
        return True
    return False


class Connecting:
    """Connects to the store that node rank 0 opened.

    TCPStore's own timeout leaves out its first exchange: from a host that is frozen or was cut off
    it would never return. So it is tried in a thread, one for each endpoint, which may stay behind.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._answers: queue.SimpleQueue[TCPStore | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def wait(self, patience_s: float = CONNECT_S) -> TCPStore | None:
        """The store; None when it does not answer within this time, or refuses. Ask again then."""
        if self._thread is None:
            self._thread = start_thread(self._connect, "holdfast-connect")
        if self._thread is None:
            return None
        with contextlib.suppress(queue.Empty):
            answer = self._answers.get(timeout=patience_s)
            self._thread = None
            return answer
        return None

    def _connect(self) -> None:
        store = None
        with contextlib.suppress(RuntimeError):
            store = TCPStore(
                self.endpoint.host,
                self.endpoint.port,
                is_master=False,
                wait_for_workers=False,
                timeout=TIMEOUT,
            )
        self._answers.put(store)


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    # A fixed --master-port must be free again at once for the next attempt.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(BACKLOG)
    return listener


# Under which address other nodes reach this one.

LOOPBACK = "127.0.0.1"


def own_address(given: str | None, redis_url: str) -> str:
    """The address given, else that of the interface on which Redis is reached."""
    if given:
        return given
    if not parse_address(redis_url).hosts:
        return LOOPBACK
    return interface_towards(redis_url) or socket.getfqdn()


def advertised(own: str, others: Iterable[str]) -> str:
    """The address to give to the other members of an attempt.

    A node that runs Redis itself reaches it on loopback, which is no address for the others.
    """
    if is_loopback(own) and not all(is_loopback(other) for other in others):
        return socket.getfqdn()
    return own


# Which machine this is: the id by which a bad one is known again under another name.

MACHINE_ID = Path("/etc/machine-id")


def read_machine(path: Path = MACHINE_ID) -> str:
    """The machine's id; the host's name where there is none (containers)."""
    try:
        return path.read_text().strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()
