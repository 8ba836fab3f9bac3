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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.checkpoint.replication.fetch import TransferCounts
from holdfast_sidecar.checkpoint.replication.slots import SealWatch
from holdfast_sidecar.checkpoint.replication.transfer import (
    NO_MORE,
    Conversation,
    Existing,
    RankWords,
    Shelves,
)
from holdfast_sidecar.checkpoint.replication.wire import (
    HANDSHAKE_S,
    Channel,
    PeerCredentials,
    ProtocolError,
    Wire,
    answer,
)
from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread

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
        self._own: PeerCredentials | None = None
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

    def admit(self, own: PeerCredentials | None) -> None:
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
                raise ProtocolError("no attempt runs")
            channel = answer(Wire(connection), own, self._handshake_s)
            self._callers.know(connection)
            self._converse(channel, lambda: self._own != own)
        except ConnectionError:
            self._note_hang_up(connection)
        except (OSError, ProtocolError) as error:
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


# This node's serving half: the server, who may call, what its ranks are told of confirmations.


class Hosting:
    """Serves one attempt at a time. The loop calls; the server's threads call back."""

    def __init__(self, shm: Path, listen: str, tally: TransferCounts) -> None:
        self._shm = shm
        self._listen = listen
        self._tally = tally
        self._watch = SealWatch(shm / OWN_DIRECTORY)
        self._server: PeerServer | None = None
        self._words: RankWords | None = None
        self._safe: dict[int, int] = {}
        self._released: set[int] = set()
        self._lock = threading.Lock()
        self.obstacle = ""
        """Why nothing is served although it should be."""

    @property
    def refused(self) -> int:
        """Callers that were refused."""
        return 0 if self._server is None else self._server.counts.refused

    def open(self) -> None:
        """Listen, unless that was done already or can't be."""
        if self._server is not None or self.obstacle:
            return
        try:
            server = PeerServer(parse_listen(self._listen), self._converse)
            server.start()
        except BlockingIOError:
            return  # the next tick tries again
        except (OSError, BadInput) as error:
            self.obstacle = f"can't listen on {self._listen}: {error}"
            log.warning("no copies on other nodes: %s", self.obstacle)
            return
        self._server = server

    def address(self, node_address: str) -> str:
        """Where other nodes call; empty: nowhere."""
        return "" if self._server is None else self._server.address(node_address)

    def admit(self, own: PeerCredentials | None) -> None:
        """Serve callers of this attempt from now on; None: nobody."""
        if self._server is not None:
            self._server.admit(own)

    def speak_to(self, attempt: int) -> None:
        """The ranks that words are for are those of this attempt; -1: there are none."""
        with self._lock:
            if self._words is not None and self._words.attempt != attempt:
                self._words.close()
                self._words = None
            if self._words is None and attempt >= 0:
                self._words = RankWords(self._shm, attempt)
                self._safe, self._released = {}, set()

    def safe(self) -> Mapping[int, int]:
        """Rank -> newest step that another node confirmed in this attempt."""
        with self._lock:
            return dict(self._safe)

    def release(self, rank: int) -> None:
        """Tell this rank not to wait for confirmations until further notice."""
        with self._lock:
            self._released.add(rank)
            self._tell(rank, NO_MORE, is_safe=False)

    def let_wait(self, rank: int) -> None:
        """Tell this rank that confirmations come again, if it was told the contrary."""
        with self._lock:
            if rank in self._released:
                self._released.discard(rank)
                self._tell(rank, self._safe.get(rank, 0), is_safe=True)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
        self._watch.close()
        self.speak_to(-1)

    def _converse(self, channel: Channel, is_over: Callable[[], bool]) -> None:
        shelves = Shelves(self._shm, self._watch, self._existing, self._confirm, self._tally.sent)
        Conversation(channel, shelves, is_over).hold()

    def _existing(self, attempt: int, rank: int) -> Existing:
        with self._lock:
            words = self._words
        if words is None or words.attempt != attempt:
            return Existing()
        return words.existing(rank)

    def _confirm(self, attempt: int, rank: int, step: int) -> None:
        with self._lock:
            if self._words is None or self._words.attempt != attempt:
                return
            self._safe[rank] = max(step, self._safe.get(rank, -1))
            if rank not in self._released:
                self._tell(rank, step, is_safe=True)

    def _tell(self, rank: int, step: int, *, is_safe: bool) -> None:
        if self._words is not None:
            self._words.tell(rank, step, is_safe=is_safe)
