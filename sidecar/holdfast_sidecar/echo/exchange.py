"""Sends packets to other sidecars, answers theirs: one UDP socket, one thread.

The kernel stamps what arrives, and an answer says how long it was held, so that a trip is that of
the network and not of two busy Python processes.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.echo.packet import (
    ANSWER,
    ASK,
    NONCE_BYTES,
    SIZE,
    Packet,
    pack,
    parse,
    read_nonce,
)
from holdfast_sidecar.echo.tally import Tally
from holdfast_sidecar.readings.round_trips import RoundTrips

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Between two packets to one node: next to nothing, for both."""

A_WINDOW = 6
"""Packets of which one median is made: half a minute."""

LATE_S = 2.0
"""What takes longer is lost: a thousand times what is usual inside a data centre."""

SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")


@dataclass(frozen=True)
class Company:
    """With whom packets are exchanged, and what proves that they belong."""

    own: str
    attempt: int
    secret: bytes = field(repr=False)
    addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass
class _Asked:
    node: str
    at_ns: int


class Exchange:
    """Runs from `open` until `close`; `keep(company)` says with whom."""

    def __init__(self, listen: tuple[str, int], every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        host, port = listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._waker, self._woken = socket.socketpair()
        self._company: Company | None = None
        self._asked: dict[bytes, _Asked] = {}
        self._tally = Tally()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="echo", daemon=True)
        self.refused = 0
        """Packets that were none of this attempt's."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def keep(self, company: Company | None) -> None:
        """Exchange with these from now on; None: with nobody. Another attempt begins anew."""
        before, self._company = self._company, company
        if company is None or before is None or before.attempt != company.attempt:
            self._tally = Tally()

    def read(self) -> RoundTrips:
        """As of the last whole window."""
        return self._tally.read()

    def close(self) -> None:
        """End the thread, and close the sockets."""
        self._is_closed = True
        self._waker.send(b".")
        self._thread.join(timeout=1.0)
        for one in (self._socket, self._waker, self._woken):
            one.close()

    def ask_all(self) -> None:
        """One packet to each; those of the round before that have not come back are given up."""
        company, tally = self._company, self._tally
        self._asked = {}
        if company is None:
            return
        for node, address in company.addresses.items():
            nonce = secrets.token_bytes(NONCE_BYTES)
            content = pack(Packet(ASK, company.attempt, node, nonce), company.secret)
            tally.sent(node)
            self._asked[nonce] = _Asked(node, time.time_ns())
            self._send(content, address)

    def close_window(self) -> None:
        """So many rounds make a window."""
        self._tally.close_window()

    def receive(self) -> None:
        """Take in what has arrived: questions and answers."""
        while True:
            try:
                content, extra, _, sender = self._socket.recvmsg(SIZE + 1, 64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # an ICMP error of an earlier packet; what matters is what came back
            self._take(content, _arrival_ns(extra), sender)

    def _take(self, content: bytes, arrived_ns: int, sender: tuple[str, int]) -> None:
        company = self._company
        if company is None:
            return
        asked = self._asked.get(read_nonce(content))
        about = company.own if asked is None else asked.node
        packet = parse(content, about, company.attempt, company.secret)
        if packet is None:
            self.refused += 1
        elif packet.kind == ASK and asked is None:
            held_ns = max(0, time.time_ns() - arrived_ns)
            answer = Packet(ANSWER, packet.attempt, packet.to, packet.nonce, held_ns)
            self._send(pack(answer, company.secret), sender)
        elif packet.kind == ANSWER and asked is not None:
            del self._asked[packet.nonce]
            took_s = (arrived_ns - asked.at_ns - packet.held_ns) / 1e9
            if 0 <= took_s < LATE_S:  # else a clock was set meanwhile
                self._tally.back(asked.node, took_s)

    def _send(self, content: bytes, address: tuple[str, int]) -> None:
        try:
            self._socket.sendto(content, address)
        except (OSError, ValueError) as error:  # ValueError: no such name can be (UnicodeError)
            log.debug("can't send to %s: %s", address[0], error)

    def _run(self) -> None:
        due_s, rounds = time.monotonic(), 0
        while not self._is_closed:
            wait_s = max(0.0, due_s - time.monotonic())
            select.select([self._socket, self._woken], [], [], wait_s)
            if self._is_closed:
                return
            self.receive()
            if time.monotonic() >= due_s:
                due_s, rounds = time.monotonic() + self._every_s, rounds + 1
                if rounds > A_WINDOW:
                    self.close_window()
                    rounds = 1
                self.ask_all()


def _arrival_ns(extra: list[tuple[int, int, bytes]]) -> int:
    """When the kernel had it; now, where it does not say."""
    for level, kind, content in extra:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, _TIMESPEC.size):
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()
