"""Sends packets to other sidecars, answers theirs: one UDP socket, one thread.

Some nodes are asked now and then for what a round trip takes, those that this sidecar judges for
whether they live: a suspected one ten times a second, directly and through two others. The kernel
stamps what arrives, and an answer says how long it was held, so that a trip is that of the network
and not of two busy Python processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from holdfast_sidecar.echo.choosing import deputies
from holdfast_sidecar.echo.lookup import Address, Hosts, SocketAddress
from holdfast_sidecar.echo.packet import (
    ANSWER,
    ASK,
    NONCE_BYTES,
    RELAY,
    SIZE,
    Packet,
    digest,
    pack,
    parse,
    read_about,
    read_nonce,
)
from holdfast_sidecar.echo.tally import Tally
from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread
from holdfast_sidecar.readings.round_trips import RoundTrips
from holdfast_sidecar.records.reports import NOTHING_KNOWN, Life, LifeSign

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Between two packets to one node: next to nothing, for both."""

A_WINDOW = 6
"""Packets of which one median is made: half a minute."""

LATE_S = 2.0
"""What takes longer is lost: a thousand times what is usual inside a data centre."""

CLOSELY_S = 0.1
"""Between two rounds of questions to a suspected node: a hundred times what a busy network takes,
and enough rounds before its heartbeats have been silent for too long."""

ACQUAINT_S = 0.5
"""Between two questions to a node that never answered: it has just opened its socket."""

MOST_AT_ONCE = 64
"""Packets taken in before it is looked at what is due: a flood keeps nobody from asking."""

MOST_OPEN = 4096
"""Questions without an answer, others' included: what some 70 suspects leave in two seconds that
are asked in every round. More take turns."""

SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")


@dataclass(frozen=True)
class Company:
    """With whom packets are exchanged, and what proves that they belong."""

    own: str
    attempt: int
    secret: bytes = field(repr=False)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    """Of those whose round trips are measured."""
    members: Mapping[str, Address] = field(default_factory=dict)
    """Of all other members: any of them may be asked whether it lives."""

    @cached_property
    def _names(self) -> Mapping[bytes, str]:
        return {digest(name): name for name in (self.own, *self.addresses, *self.members)}

    def named(self, about: bytes) -> str:
        """The node of this digest; empty: none of us."""
        return self._names.get(about, "")

    def address_of(self, node: str) -> Address | None:
        """Where it answers."""
        return self.members.get(node) or self.addresses.get(node)


@dataclass
class _Asked:
    node: str
    is_measured: bool = False
    at_ns: int = 0
    at_s: float = 0.0
    asker: tuple[SocketAddress, bytes] | None = None
    """Of a question that another node had us ask: where its answer goes, and its own nonce."""


class Exchange:
    """What runs while an attempt does; `keep` says with whom."""

    def __init__(self, listen: Address, every_s: float = EVERY_S) -> None:
        """Raises OSError where it can't listen there."""
        host, port = listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._every_s = every_s
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._company: Company | None = None
        self._life = NOTHING_KNOWN
        self._asked: dict[bytes, _Asked] = {}
        self._hosts = Hosts(family)
        self._tally = Tally()
        self._watched: frozenset[str] = frozenset()
        self._suspects: frozenset[str] = frozenset()
        self._suspected: frozenset[str] = frozenset()
        self._pressed: set[str] = set()
        self._pressed_s: dict[str, float] = {}
        self._heard: dict[str, LifeSign] = {}
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.refused = 0
        """Packets that were none of this attempt's."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def open(self) -> None:
        """Begin. Raises BlockingIOError where no thread can be started now."""
        self._thread = start_thread(self._run, "echo")
        if self._thread is None:
            raise BlockingIOError(errno.EAGAIN, NONE_LEFT)

    def keep(self, company: Company | None) -> None:
        """Exchange with these from now on; None: with nobody. Another attempt begins anew, and so
        does a node that answers somewhere else."""
        before, self._company = self._company, company
        if before != company:
            self._wake()
        if company is None or before is None or before.attempt != company.attempt:
            self._tally, self._heard, self._hosts = Tally(), {}, Hosts(self._socket.family)
            return
        for node in list(self._heard):
            if before.address_of(node) != company.address_of(node):
                self._heard.pop(node, None)

    def tell(self, life: Life) -> None:
        """What is answered from now on."""
        self._life = life

    def watch(self, nodes: frozenset[str], suspects: frozenset[str]) -> None:
        """Ask these nodes now and then whether they live, and the suspects among them closely."""
        is_news = (nodes, suspects) != (self._watched, self._suspects)
        self._watched, self._suspects = nodes, suspects
        if is_news:
            self._wake()

    def heard(self) -> Mapping[str, LifeSign]:
        """What is known of those that answered, or were asked closely."""
        return dict(self._heard)

    def read(self) -> RoundTrips:
        """As of the last whole window."""
        return self._tally.read()

    def close(self) -> None:
        """End the thread, and close the sockets."""
        self._is_closed = True
        self._waker.send(b".")
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        for one in (self._socket, self._waker, self._woken):
            one.close()

    def _wake(self) -> None:
        """What has changed is acted on at once."""
        if not self._is_closed:
            with contextlib.suppress(OSError):
                self._waker.send(b".")

    def ask_all(self) -> None:
        """One packet to each whose round trips are measured, and to each that is watched; what was
        measured in the round before and has not come back is given up."""
        company = self._company
        self._asked = {n: one for n, one in self._asked.items() if not one.is_measured}
        self._forget_late()
        if company is None:
            return
        for node in company.addresses:
            self._measure(company, node)
        for node in self._watched - company.addresses.keys():
            self._ask(company, node)

    def ask_strangers(self) -> None:
        """Those that are watched and never answered in this attempt."""
        company = self._company
        self._forget_late()
        if company is None:
            return
        for node in self._watched:
            if node not in self._heard:
                self._ask(company, node)

    def ask_closely(self) -> None:
        """Every suspect, directly and through others; of the round before, note who was silent.

        Only who was asked can have been: where there is no room for more questions, or this node's
        own link is down, nobody was. Whoever was asked longest ago goes first.
        """
        company, suspects, now_s = self._company, self._suspects, time.monotonic()
        self._forget_late()
        for node in self._suspected - suspects:
            self._count_unanswered(node, is_over=True)
        self._suspected = suspects
        if company is None:
            return
        for node in suspects & self._pressed:
            self._count_unanswered(node)
        others = company.members.keys() - suspects
        in_turn = sorted(suspects, key=lambda node: self._pressed_s.get(node, float("-inf")))
        self._pressed = {node for node in in_turn if self._press(company, node, others)}
        turns_s = self._pressed_s | dict.fromkeys(self._pressed, now_s)
        self._pressed_s = {node: at_s for node, at_s in turns_s.items() if node in suspects}

    def _count_unanswered(self, node: str, is_over: bool = False) -> None:
        if (known := self._heard.get(node)) is not None:
            count = 0 if is_over else known.unanswered + 1
            self._heard[node] = dataclasses.replace(known, unanswered=count)

    def _press(self, company: Company, node: str, others: Set[str]) -> bool:
        """Ask it and those that may ask it for us; whether both could be done, where there are
        such."""
        through = deputies(company.own, node, others)
        is_asked = self._ask(company, node)
        relayed = [self._ask(company, node, through=deputy) for deputy in through]
        return is_asked and (any(relayed) or not through)

    def close_window(self) -> None:
        """So many rounds make a window."""
        self._tally.close_window()

    def receive(self) -> None:
        """Take in what has arrived: questions and answers."""
        for _ in range(MOST_AT_ONCE):
            try:
                content, extra, _, sender = self._socket.recvmsg(SIZE + 1, 64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # an ICMP error of an earlier packet; what matters is what came back
            self._take(content, _arrival_ns(extra), sender)

    def _measure(self, company: Company, node: str) -> None:
        """A packet that this node's link or name service does not take is lost like others."""
        if len(self._asked) < MOST_OPEN:
            self._tally.sent(node)
            self._ask(company, node, is_measured=True)

    def _ask(
        self, company: Company, node: str, is_measured: bool = False, through: str = ""
    ) -> bool:
        """Whether the question was sent."""
        asked = _Asked(node, is_measured)
        kind = RELAY if through else ASK
        packet = Packet(kind, company.attempt, node, secrets.token_bytes(NONCE_BYTES))
        return self._put(asked, packet, company, through or node)

    def _put(self, asked: _Asked, packet: Packet, company: Company, to: str) -> bool:
        """Send a question, and remember it until it is answered; whether it was sent."""
        address = company.address_of(to)
        if address is None or len(self._asked) >= MOST_OPEN:
            return False
        place, content = self._hosts.find(address), pack(packet, company.secret)
        asked.at_ns, asked.at_s = time.time_ns(), time.monotonic()
        if place is None or not self._send(content, place):
            return False
        self._asked[packet.nonce] = asked
        return True

    def _take(self, content: bytes, arrived_ns: int, sender: SocketAddress) -> None:
        company = self._company
        if company is None:
            return
        asked = self._asked.get(read_nonce(content))
        about = company.named(read_about(content)) if asked is None else asked.node
        packet = parse(content, about, company.attempt, company.secret) if about else None
        if packet is None:
            self.refused += 1
        elif asked is not None:
            if packet.kind == ANSWER:
                self._take_answer(company, packet, asked, arrived_ns)
        elif packet.kind == ASK and packet.to == company.own:
            held_ns = max(0, time.time_ns() - arrived_ns)
            answer = dataclasses.replace(packet, kind=ANSWER, held_ns=held_ns, life=self._life)
            self._send(pack(answer, company.secret), sender)
        elif packet.kind == RELAY and packet.to != company.own:
            self._ask_for(company, packet, sender)

    def _take_answer(
        self, company: Company, packet: Packet, asked: _Asked, arrived_ns: int
    ) -> None:
        del self._asked[packet.nonce]
        if asked.asker is not None:
            sender, nonce = asked.asker
            self._send(pack(dataclasses.replace(packet, nonce=nonce), company.secret), sender)
            return
        self._note(asked, packet.life)
        took_s = (arrived_ns - asked.at_ns - packet.held_ns) / 1e9
        if asked.is_measured and 0 <= took_s < LATE_S:  # else a clock was set meanwhile
            self._tally.back(asked.node, took_s)

    def _ask_for(self, company: Company, packet: Packet, sender: SocketAddress) -> None:
        """Another node asks us to ask this one."""
        asked = _Asked(packet.to, asker=(sender, packet.nonce))
        nonce = secrets.token_bytes(NONCE_BYTES)
        question = dataclasses.replace(packet, kind=ASK, nonce=nonce)
        self._put(asked, question, company, packet.to)

    def _note(self, asked: _Asked, life: Life) -> None:
        known = self._heard.get(asked.node, LifeSign())
        is_same = known.answered_s is not None and known.life.step == life.step
        since_s = known.since_step_s if is_same else asked.at_s
        at_s = max(asked.at_s, known.answered_s or 0.0)
        self._pressed.discard(asked.node)
        self._heard[asked.node] = LifeSign(at_s, 0, life, since_s)

    def _forget_late(self) -> None:
        """An answer to these would be too old to count."""
        since_s = time.monotonic() - LATE_S
        self._asked = {
            n: one for n, one in self._asked.items() if one.is_measured or one.at_s >= since_s
        }

    def _send(self, content: bytes, place: SocketAddress) -> bool:
        try:
            self._socket.sendto(content, place)
        except OSError as error:
            log.debug("can't send to %s: %s", place[0], error)
            return False
        return True

    def _run(self) -> None:
        due_s, close_due_s, rounds = time.monotonic(), time.monotonic(), 0
        asked_s = float("-inf")
        while not self._is_closed:
            is_close = bool(self._suspects or self._suspected)
            has_haste = is_close or not self._watched <= self._heard.keys()
            next_s = min(due_s, close_due_s) if has_haste else due_s
            wait_s = max(0.0, next_s - time.monotonic())
            select.select([self._socket, self._woken], [], [], wait_s)
            if self._is_closed:
                return
            self.receive()
            now_s = time.monotonic()
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
                close_due_s = min(close_due_s, asked_s + CLOSELY_S)
            if now_s >= due_s:
                due_s, rounds = now_s + self._every_s, rounds + 1
                if rounds > A_WINDOW:
                    self.close_window()
                    rounds = 1
                self.ask_all()
            if now_s >= close_due_s:
                asked_s = now_s
                close_due_s = now_s + (CLOSELY_S if self._suspects else ACQUAINT_S)
                if not self._suspects:
                    self.ask_strangers()
                self.ask_closely()


def _arrival_ns(extra: list[tuple[int, int, bytes]]) -> int:
    """When the kernel had it; now, where it does not say."""
    for level, kind, content in extra:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, _TIMESPEC.size):
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()
