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
import hashlib
import hmac
import logging
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import median
from typing import Any, Protocol

from holdfast_sidecar.components.network.round_trip_checks import RoundTrips, Trips
from holdfast_sidecar.config.addresses import (
    WILDCARDS,
    bracketed,
    is_loopback,
    own_address_towards,
    parse_listen,
)
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import (
    NOTHING_KNOWN,
    AgentReport,
    Life,
    LifeSign,
    NodeReport,
    RankReport,
)
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

log = logging.getLogger(__name__)


# The packet that goes to another sidecar and comes back: signed with the attempt's key.
#
# Whoever does not know the key gets no answer, and an answer is as long as its question, so that
# nothing is to be had by asking in somebody else's name.

ASK, ANSWER, RELAY = 1, 2, 3
"""RELAY asks whoever gets it to ask `to`, and to hand on what that answers."""
NONCE_BYTES = 16

_MAGIC = b"HFe2"
_BODY = struct.Struct(">4sBBHq8s16sQq")
_MAC_BYTES = 16
SIZE = _BODY.size + _MAC_BYTES
_MOST_RANKS = 2**16 - 1


@dataclass(frozen=True)
class Packet:
    """`to` is the node that is asked, in both directions; `held_ns` how long it held an answer."""

    kind: int
    attempt: int
    to: str
    nonce: bytes
    held_ns: int = 0
    life: Life = NOTHING_KNOWN
    """Of the node that answers."""


def pack(packet: Packet, secret: bytes) -> bytes:
    """The packet with its signature."""
    life = packet.life
    body = _BODY.pack(
        _MAGIC,
        packet.kind,
        life.has_launcher,
        min(life.ranks, _MOST_RANKS),
        packet.attempt,
        digest(packet.to),
        packet.nonce,
        packet.held_ns,
        life.step,
    )
    return body + _sign(body, secret)


def parse(content: bytes, to: str, attempt: int, secret: bytes) -> Packet | None:
    """The packet, if it is one of this attempt about this node, signed with its key; else None."""
    if len(content) != SIZE:
        return None
    body, signature = content[: _BODY.size], content[_BODY.size :]
    magic, kind, has_launcher, ranks, number, about, nonce, held_ns, step = _BODY.unpack(body)
    if (magic, number, about) != (_MAGIC, attempt, digest(to)):
        return None
    if not hmac.compare_digest(signature, _sign(body, secret)):
        return None
    return Packet(kind, number, to, nonce, held_ns, Life(bool(has_launcher), ranks, step))


def read_nonce(content: bytes) -> bytes:
    """By which an answer is matched with its question, before it is believed; empty: no packet."""
    return _BODY.unpack(content[: _BODY.size])[6] if len(content) == SIZE else b""


def read_about(content: bytes) -> bytes:
    """Digest of the node that it is about, before it is believed; empty: no packet."""
    return _BODY.unpack(content[: _BODY.size])[5] if len(content) == SIZE else b""


def _sign(body: bytes, secret: bytes) -> bytes:
    return hmac.digest(_own_key(secret), body, "sha256")[:_MAC_BYTES]


@lru_cache(maxsize=2)
def _own_key(secret: bytes) -> bytes:
    """A key of its own: no signature of another protocol fits here, nor the other way round."""
    return hmac.digest(secret, b"holdfast echo", "sha256")


def digest(node: str) -> bytes:
    """By which a packet names a node."""
    return hashlib.sha256(node.encode()).digest()[:8]


# What became of the packets of one window, and of the windows before. No clock of its own.

KEPT = 3
"""Windows: what is told as slow was so in all of them."""


@dataclass
class RoundTripCounts:
    """Fed by the thread that sends and receives."""

    _sent: dict[str, int] = field(default_factory=dict)
    _times: dict[str, list[float]] = field(default_factory=dict)
    _windows: tuple[Mapping[str, Trips], ...] = ()
    _ever: frozenset[str] = frozenset()

    def sent(self, node: str) -> None:
        """A packet left for this node."""
        self._sent[node] = self._sent.get(node, 0) + 1

    def back(self, node: str, took_s: float) -> None:
        """One came back."""
        self._times.setdefault(node, []).append(took_s)
        self._ever |= {node}

    def close_window(self) -> None:
        """What has not come back by now is lost."""
        window = {
            node: _trips(count, self._times.get(node, ())) for node, count in self._sent.items()
        }
        self._windows = (*self._windows, window)[-KEPT:] if window else self._windows
        self._sent, self._times = {}, {}

    def read(self) -> RoundTrips:
        """As of the last whole window."""
        return RoundTrips(self._windows, self._ever)


def _trips(sent: int, times: list[float] | tuple[()]) -> Trips:
    return Trips(sent, max(0, sent - len(times)), median(times) if times else None)


# Which other nodes a node sends packets to: few, and so that each node is reached by as many.

FEWEST = 8
"""All of a small job: what is usual is told from several, and who is odd by several."""


def choose(own: str, nodes: Iterable[str]) -> tuple[str, ...]:
    """Those at distances 1, 2, 4, … around the ring of names (log2 of all of them), and the next
    ones until there are eight."""
    ring = sorted({own, *nodes})
    start, size = ring.index(own), len(ring)
    doubling = [2**power for power in range(size.bit_length()) if 2**power < size]
    following = [step for step in range(1, size) if step not in doubling]
    steps = [*doubling, *following[: max(0, FEWEST - len(doubling))]]
    return tuple(ring[(start + step) % size] for step in steps)


def deputies(own: str, about: str, nodes: Collection[str], count: int = 2) -> tuple[str, ...]:
    """Through whom a node is asked besides: those that follow it around the ring of names."""
    ring = sorted({*nodes, about} - {own})
    start = ring.index(about) + 1
    others = [name for name in (*ring[start:], *ring[: start - 1]) if name in nodes]
    return tuple(name for name in others if name != about)[:count]


# Where other nodes' hosts are: each name looked up once, in the thread that sends.

Address = tuple[str, int]

SocketAddress = tuple[Any, ...]
"""As the socket module has it: address, port, and of IPv6 two numbers more."""

NEXT_LOOKUP_S = 30.0
"""After a name was not found: it may be published later, as that of a pod."""

SLOW_LOOKUP_S = 1.0
"""A name service that takes longer is away: nobody is asked or answered while it is waited for."""


def look_up(host: str, family: int, flags: int = 0) -> SocketAddress:
    """Where this host is. Raises OSError; ValueError where no such name can be."""
    found = socket.getaddrinfo(host, None, family, socket.SOCK_DGRAM, flags=flags)
    place: SocketAddress = found[0][4]
    return place


class Hosts:
    """The addresses of hosts, each looked up once.

    One that was not found is tried again later; when the name service was slow over it, no other
    name is looked up until then.
    """

    def __init__(
        self,
        family: int,
        look_up: Callable[[str, int, int], SocketAddress] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._family = family
        self._look_up = look_up
        self._clock = clock
        self._known: dict[str, SocketAddress] = {}
        self._unknown_until_s: dict[str, float] = {}
        self._away_until_s = float("-inf")

    def find(self, address: Address) -> SocketAddress | None:
        """Where to send what is for this address; None: not known now."""
        host, port = address
        place = self._known.get(host) or self._find(host)
        return None if place is None else (place[0], port, *place[2:])

    def _find(self, host: str) -> SocketAddress | None:
        began_s = self._clock()
        if began_s < self._unknown_until_s.get(host, began_s):
            return None
        try:
            self._known[host] = self._look_up(host, self._family, socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            if began_s >= self._away_until_s:
                self._ask_for(host, began_s)
        return self._known.get(host)

    def _ask_for(self, host: str, began_s: float) -> None:
        try:
            self._known[host] = self._look_up(host, self._family, 0)
        except (OSError, ValueError) as error:
            log.debug("no address of %s: %s", host, error)
            self._unknown_until_s[host] = self._clock() + NEXT_LOOKUP_S
            if self._clock() - began_s >= SLOW_LOOKUP_S:
                self._away_until_s = self._clock() + NEXT_LOOKUP_S


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
class RoundTripPeers:
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
        self._company: RoundTripPeers | None = None
        self._life = NOTHING_KNOWN
        self._asked: dict[bytes, _Asked] = {}
        self._hosts = Hosts(family)
        self._tally = RoundTripCounts()
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

    def keep(self, company: RoundTripPeers | None) -> None:
        """Exchange with these from now on; None: with nobody. Another attempt begins anew, and so
        does a node that answers somewhere else."""
        before, self._company = self._company, company
        if before != company:
            self._wake()
        if company is None or before is None or before.attempt != company.attempt:
            self._tally, self._heard, self._hosts = (
                RoundTripCounts(),
                {},
                Hosts(self._socket.family),
            )
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

    def _press(self, company: RoundTripPeers, node: str, others: Set[str]) -> bool:
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

    def _measure(self, company: RoundTripPeers, node: str) -> None:
        """A packet that this node's link or name service does not take is lost like others."""
        if len(self._asked) < MOST_OPEN:
            self._tally.sent(node)
            self._ask(company, node, is_measured=True)

    def _ask(
        self, company: RoundTripPeers, node: str, is_measured: bool = False, through: str = ""
    ) -> bool:
        """Whether the question was sent."""
        asked = _Asked(node, is_measured)
        kind = RELAY if through else ASK
        packet = Packet(kind, company.attempt, node, secrets.token_bytes(NONCE_BYTES))
        return self._put(asked, packet, company, through or node)

    def _put(self, asked: _Asked, packet: Packet, company: RoundTripPeers, to: str) -> bool:
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
        self, company: RoundTripPeers, packet: Packet, asked: _Asked, arrived_ns: int
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

    def _ask_for(self, company: RoundTripPeers, packet: Packet, sender: SocketAddress) -> None:
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


# A node's part in round trips: with whom, from which address, and what came of it.
#
# The socket listens on the rendezvous address of a job that has nodes on several machines, because
# packets are signed with the attempt's key; `snapshot.peer_listen` may say another one.

ASKED_EVERY_S = 5.0
"""How often the others' reports are looked through, where nothing in them changed before."""


class RoundTrip(Protocol):
    """What the loop asks for."""

    def follow(self, orders: Orders, now_s: float) -> RoundTrips | None:
        """What is known by now; packets go on meanwhile. None: there is nobody to ask."""

    def tell(self, life: Life) -> None:
        """What others are answered from now on."""

    @property
    def address(self) -> str:
        """Where this node answers, host:port; empty: nowhere."""

    def close(self) -> None:
        """Neither ask nor answer any more."""


class NoRoundTrip:
    """Nobody to exchange packets with."""

    address = ""

    def follow(self, orders: Orders, now_s: float) -> RoundTrips | None:
        """Nothing."""
        return None

    def tell(self, life: Life) -> None:
        """Nobody."""

    def close(self) -> None:
        """Nothing to do."""


@dataclass
class NodeRoundTrip:
    """One node's part in it. The loop keeps the company; coordination says whom it judges."""

    node: str
    listen: str
    open_exchange: Callable[[Address], Exchange] = Exchange
    towards: Callable[[str], str] = own_address_towards
    address: str = ""
    _exchange: Exchange | None = None
    _host: str = ""
    _is_impossible: bool = False
    _due_s: float = float("-inf")
    _seen: object = None
    _beats: dict[str, int] = field(default_factory=dict)
    _members: dict[str, Address] = field(default_factory=dict)
    _attempt: int = -1
    _accusers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def follow(self, orders: Orders, now_s: float) -> RoundTrips | None:
        """Keep the company up to date; what came back so far."""
        seen = self._news(orders)
        if now_s >= self._due_s or seen != self._seen:
            self._due_s, self._seen = now_s + ASKED_EVERY_S, seen
            self._look_around(orders)
        if self._exchange is None:
            return None
        return replace(self._exchange.read(), also_slow_for=self._accusers)

    def tell(self, life: Life) -> None:
        """What others are answered from now on."""
        if self._exchange is not None:
            self._exchange.tell(life)

    def watch(self, nodes: frozenset[str], suspects: frozenset[str]) -> None:
        """Ask these nodes whether they live, and the suspects among them closely."""
        if (exchange := self._exchange) is not None:
            exchange.watch(nodes, suspects)

    def heard(self) -> Mapping[str, LifeSign]:
        """What came of it, by node."""
        exchange = self._exchange
        return {} if exchange is None else exchange.heard()

    def close(self) -> None:
        """End the thread."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _news(self, orders: Orders) -> object:
        """What is not waited five seconds for: another attempt, its key, where a member answers."""
        plan, key, nodes = orders.plan, orders.key, orders.nodes or {}
        if plan is None or plan.state not in RUNNING:
            return None
        told = [n.echo_address for m in plan.members if (n := nodes.get(m.node)) is not None]
        return plan.attempt, key, told

    def _look_around(self, orders: Orders) -> None:
        reports = self._others(orders)
        if reports and not self._is_impossible:
            self._open(self._listen_host(orders))
        if self._exchange is None:
            return
        self.address = self._own_address(orders)
        self._accusers = accusers(reports)
        moving = {name: one for name, one in reports.items() if one.beat != self._beats.get(name)}
        # A sidecar that stands still answers nobody: that is told otherwise, and is no slow link.
        self._beats = {name: one.beat for name, one in reports.items()}
        self._exchange.keep(self._company(orders, reports, moving))

    def _open(self, host: str) -> None:
        if self._exchange is not None and host == self._host:
            return
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None
        try:
            self._exchange = self.open_exchange((host, parse_listen(self.listen)[1]))
        except (OSError, BadInput) as error:
            self._is_impossible = True
            log.warning("no round trips to other nodes: can't listen on %s: %s", host, error)
            return
        self._host = host
        try:
            self._exchange.open()
        except BlockingIOError:  # the next look tries again
            self._exchange.close()
            self._exchange = None

    def _listen_host(self, orders: Orders) -> str:
        """Loopback is for jobs whose nodes are all on this machine."""
        given, _ = parse_listen(self.listen)
        agents = _agents(orders)
        own = agents[self.node].address if self.node in agents else ""
        others = [one.address for name, one in sorted(agents.items()) if name != self.node]
        far = [address for address in others if address and not is_loopback(address)]
        if not is_loopback(given) or (not far and is_loopback(own or given)):
            return given
        return self.towards(far[0] if far else own) or given

    def _others(self, orders: Orders) -> dict[str, NodeReport]:
        """Of the members of the attempt but this node."""
        plan = orders.plan
        if orders.view is None or plan is None or not _is_under_way(plan):
            return {}
        others = {member.node for member in plan.members} - {self.node}
        reports = {name: orders.node_report(name) for name in others}
        return {name: one for name, one in reports.items() if one is not None}

    def _company(
        self, orders: Orders, reports: Mapping[str, NodeReport], moving: Mapping[str, NodeReport]
    ) -> RoundTripPeers | None:
        key = orders.key
        if key is None:
            return None
        try:
            secret = bytes.fromhex(key.secret)
        except ValueError:
            return None  # written by none of us
        if key.attempt != self._attempt or not _is_under_way(orders.plan):
            self._attempt, self._members = key.attempt, {}
        for name, report in reports.items():
            # Who vanished from the store is asked where it last answered.
            if (address := parse_address(report.echo_address)) is not None:
                self._members[name] = address
        # A spare measures nothing, but it may lead, and then asks who lives.
        is_member = orders.plan is not None and self.node in {m.node for m in orders.plan.members}
        chosen = choose(self.node, moving) if is_member else ()
        addresses = {name: self._members[name] for name in chosen if name in self._members}
        return RoundTripPeers(self.node, key.attempt, secret, addresses, dict(self._members))

    def _own_address(self, orders: Orders) -> str:
        host = self._host
        if host in WILDCARDS:
            own = _agents(orders).get(self.node)
            host = "" if own is None else own.address
        if not host or self._exchange is None:
            return ""
        return f"{bracketed(host)}:{self._exchange.port}"


def _is_under_way(plan: Plan | None) -> bool:
    return plan is not None and plan.state in RUNNING


def _agents(orders: Orders) -> dict[str, AgentReport]:
    """Of the members of the attempt."""
    if orders.view is None or orders.plan is None:
        return {}
    texts = orders.view.section(Section.AGENTS)
    decoded = (decode(AgentReport, texts.get(one.node, "")) for one in orders.plan.members)
    return {one.node: one for one in decoded if one is not None}


RUNNING = ("running", "evidence")


def life_of(has_launcher: bool, ranks: Sequence[RankReport]) -> Life:
    """What is answered for a node with these ranks."""
    alive = [rank for rank in ranks if rank.alive]
    return Life(has_launcher, len(alive), min((rank.step for rank in alive), default=-1))


def accusers(reports: Mapping[str, NodeReport]) -> dict[str, tuple[str, ...]]:
    """Node -> which of these find the way to it slow."""
    found: dict[str, list[str]] = {}
    for name, report in sorted(reports.items()):
        for finding in report.findings:
            if finding.kind is Kind.PEER_SLOW:
                found.setdefault(finding.what, []).append(name)
    return {node: tuple(names) for node, names in found.items()}


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of `host:port`; None when it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5:
        return None
    if int(port) > 65535:
        return None
    return host.strip("[]"), int(port)
