"""The loop's view of round trips: with whom, from which address, and what came of it.

Follows the peer copies' rule for listening: `snapshot.peer_listen`, which is loopback unless set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.echo.choosing import choose
from holdfast_sidecar.echo.exchange import Company, Exchange
from holdfast_sidecar.findings import Kind
from holdfast_sidecar.listening import parse_listen
from holdfast_sidecar.local_state import Orders
from holdfast_sidecar.readings.round_trips import RoundTrips
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.node import NodeReport

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""How often the others' reports are looked through: addresses hardly ever change."""

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - to tell them apart, not to bind to them


class Echo(Protocol):
    """What the loop asks for."""

    def follow(self, orders: Orders, now_s: float) -> RoundTrips | None:
        """What is known by now; packets go on meanwhile. None: there is nobody to ask."""

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

    def close(self) -> None:
        """Nothing to do."""


@dataclass
class NodeEcho:
    """One node's part in it."""

    node: str
    listen: str
    open_exchange: Callable[[tuple[str, int]], Exchange] = Exchange
    address: str = ""
    _exchange: Exchange | None = None
    _is_impossible: bool = False
    _due_s: float = float("-inf")
    _beats: dict[str, int] = field(default_factory=dict)
    _accusers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def follow(self, orders: Orders, now_s: float) -> RoundTrips | None:
        """Keep the company up to date; what came back so far."""
        if now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            self._look_around(orders)
        if self._exchange is None:
            return None
        return replace(self._exchange.read(), also_slow_for=self._accusers)

    def close(self) -> None:
        """End the thread."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def _look_around(self, orders: Orders) -> None:
        reports = self._others(orders)
        if reports and self._exchange is None and not self._is_impossible:
            self._open()
        if self._exchange is None:
            return
        self.address = self._own_address(orders)
        self._accusers = accusers(reports)
        moving = {name: one for name, one in reports.items() if one.beat != self._beats.get(name)}
        # A sidecar that stands still answers nobody: that is told otherwise, and is no slow link.
        self._beats = {name: one.beat for name, one in reports.items()}
        self._exchange.keep(self._company(orders, moving))

    def _open(self) -> None:
        try:
            self._exchange = self.open_exchange(parse_listen(self.listen))
        except (OSError, BadInput) as error:
            self._is_impossible = True
            log.warning("no round trips to other nodes: can't listen on %s: %s", self.listen, error)
            return
        self._exchange.open()

    def _others(self, orders: Orders) -> dict[str, NodeReport]:
        """Of the other members of the attempt."""
        if orders.view is None or orders.plan is None or orders.plan.state not in RUNNING:
            return {}
        texts = orders.view.section(Section.NODES)
        members = {member.node for member in orders.plan.members}
        if self.node not in members:
            return {}
        decoded = (decode(NodeReport, texts.get(name, "")) for name in members - {self.node})
        return {one.node: one for one in decoded if one is not None}

    def _company(self, orders: Orders, reports: Mapping[str, NodeReport]) -> Company | None:
        key = orders.key
        if key is None:
            return None
        try:
            secret = bytes.fromhex(key.secret)
        except ValueError:
            return None  # written by none of us
        addresses = {}
        for name in choose(self.node, reports):
            if (address := parse_address(reports[name].echo_address)) is not None:
                addresses[name] = address
        return Company(self.node, key.attempt, secret, addresses)

    def _own_address(self, orders: Orders) -> str:
        host, _ = parse_listen(self.listen)
        if host in WILDCARDS and orders.view is not None:
            agent = decode(AgentReport, orders.view.section(Section.AGENTS).get(self.node, ""))
            host = "" if agent is None else agent.address
        if not host or self._exchange is None:
            return ""
        port = self._exchange.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


RUNNING = ("running", "evidence")


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
