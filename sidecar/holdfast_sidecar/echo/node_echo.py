"""A node's part in round trips: with whom, from which address, and what came of it.

The socket listens on the rendezvous address of a job that has nodes on several machines, because
packets are signed with the attempt's key; `snapshot.peer_listen` may say another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast_sidecar.config.addresses import (
    WILDCARDS,
    bracketed,
    is_loopback,
    own_address_towards,
    parse_listen,
)
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.echo.choosing import choose
from holdfast_sidecar.echo.exchange import Company, Exchange
from holdfast_sidecar.echo.lookup import Address
from holdfast_sidecar.readings.round_trips import RoundTrips
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport, Life, LifeSign, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""How often the others' reports are looked through, where nothing in them changed before."""


class Echo(Protocol):
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


class NoEcho:
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
class NodeEcho:
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
            self._due_s, self._seen = now_s + EVERY_S, seen
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
    ) -> Company | None:
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
        return Company(self.node, key.attempt, secret, addresses, dict(self._members))

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
