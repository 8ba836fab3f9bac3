"""Where other nodes' sidecars fetch this node's snapshots: a listening thread, one thread a caller.

Whoever does not know the attempt's key learns nothing and is counted. Callers are bounded, and each
is waited for only so long.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread
from holdfast_sidecar.peers.channel import Channel
from holdfast_sidecar.peers.framing import Refused, Wire
from holdfast_sidecar.peers.handshake import HANDSHAKE_S, Credentials, answer

log = logging.getLogger(__name__)

MOST_CALLERS = 64
"""A caller has one rank's worth of work; 64 is a big node's ranks, several times over."""

MOST_STRANGERS = 16
"""Callers that have not proved themselves yet; they must never take the room of those who have."""

ACCEPT_AGAIN_S = 0.1
"""After a failure to accept that passes: out of descriptors, a caller gone before its turn."""

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - to tell them apart, not to bind to them


@dataclass
class ServerCounts:
    """Since this sidecar started."""

    refused: int = 0
    """Callers without the key, beyond a limit, too slow, or speaking something else."""


class PeerServer:
    """Listens from `start` until `close`. `converse(channel, is_over)` answers a proven caller."""

    def __init__(
        self,
        listen: tuple[str, int],
        converse: Callable[[Channel, Callable[[], bool]], None],
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._listen = listen
        self._converse = converse
        self._handshake_s = handshake_s
        self._own: Credentials | None = None
        self._socket: socket.socket | None = None
        self._callers = _Callers()
        self.counts = ServerCounts()

    def start(self) -> None:
        """Bind and listen. Raises OSError; BlockingIOError where only a thread is missing."""
        host, port = self._listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        dual = host == "::" and socket.has_dualstack_ipv6()
        self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
        if start_thread(self._accept, "peer-accept", (self._socket,)) is None:
            self.close()
            raise BlockingIOError(errno.EAGAIN, NONE_LEFT)

    def admit(self, own: Credentials | None) -> None:
        """Serve those of this attempt from now on; None: nobody. Callers of another one must go."""
        if own != self._own:
            self._own = own
            self._callers.send_away()

    def address(self, node_address: str) -> str:
        """host:port to tell the others; on a wildcard the node's own address. Empty: closed."""
        if self._socket is None:
            return ""
        host, port = self._listen[0], self._socket.getsockname()[1]
        host = node_address if host in WILDCARDS else host
        if not host:
            return ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Stop listening and send everyone away."""
        self._own = None
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread in accept
            self._socket.close()
            self._socket = None
        self._callers.send_away()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError as error:
                if self._socket is not listening or error.errno in (errno.EBADF, errno.EINVAL):
                    return  # closed
                time.sleep(ACCEPT_AGAIN_S)
                continue
            if not self._callers.let_in(connection):
                self._refuse("more callers than there may be")
                connection.close()
                continue
            if start_thread(self._serve, "peer-serve", (connection,)) is None:
                self._callers.see_off(connection)
                connection.close()  # it calls again
                time.sleep(ACCEPT_AGAIN_S)

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own = self._own
            if own is None:
                raise Refused("no attempt runs")
            channel = answer(Wire(connection), own, self._handshake_s)
            self._callers.know(connection)
            self._converse(channel, lambda: self._own != own)
        except ConnectionError:
            self._note_hang_up(connection)
        except (OSError, Refused) as error:
            self._refuse(str(error))
        finally:
            self._callers.see_off(connection)
            connection.close()

    def _note_hang_up(self, connection: socket.socket) -> None:
        """Leaving is no offence, unless before having said who it is."""
        if not self._callers.knows(connection):
            self._refuse("it hung up before it proved who it is")

    def _refuse(self, why: str) -> None:
        self.counts.refused += 1
        log.debug("refused a caller: %s", why)


@dataclass
class _Callers:
    """The open connections, and which of them are proven."""

    _all: set[socket.socket] = field(default_factory=set)
    _known: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def let_in(self, connection: socket.socket) -> bool:
        with self._lock:
            strangers = len(self._all) - len(self._known)
            if len(self._known) >= MOST_CALLERS or strangers >= MOST_STRANGERS:
                return False
            self._all.add(connection)
            return True

    def know(self, connection: socket.socket) -> None:
        with self._lock:
            self._known.add(connection)

    def knows(self, connection: socket.socket) -> bool:
        return connection in self._known

    def see_off(self, connection: socket.socket) -> None:
        with self._lock:
            self._all.discard(connection)
            self._known.discard(connection)

    def send_away(self) -> None:
        with self._lock:
            for connection in self._all:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
