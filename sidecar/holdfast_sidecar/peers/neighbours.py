"""What the other nodes' sidecars reported, as far as peer copies need it; read only where asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.peers.source import Partner
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section


@dataclass(frozen=True)
class Neighbours:
    """All nodes' reports as they came, by node."""

    own: str
    reports: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(orders: Orders, own: str) -> Neighbours:
        """Those of the newest reading of the store."""
        if orders.view is None:
            return Neighbours(own)
        view = orders.view
        return Neighbours(own, view.section(Section.NODES), view.section(Section.AGENTS))

    @property
    def are_none(self) -> bool:
        """Whether this node is alone."""
        return not (self.reports.keys() - {self.own})

    @property
    def own_address(self) -> str:
        """Where other nodes reach this one, as its launcher says; empty: not known."""
        agent = decode(AgentReport, self.agents.get(self.own, ""))
        return "" if agent is None else agent.address

    @property
    def are_elsewhere(self) -> bool:
        """Whether some of them are on other machines."""
        agents = (decode(AgentReport, text) for text in self.agents.values())
        return len({agent.machine for agent in agents if agent is not None}) > 1

    def partner(self, node: str) -> Partner | None:
        """A node that can be called; None: it does not listen (yet)."""
        report = decode(NodeReport, self.reports.get(node, ""))
        if report is None or report.snapshot is None or not report.snapshot.peer_address:
            return None
        return Partner(node, report.snapshot.peer_address)

    def existing(self, attempt: int) -> int:
        """Newest step of this attempt that some node knows to exist on all ranks; -1: none."""
        return max(
            (
                report.snapshot.newest
                for report in self._all()
                if report.snapshot is not None and report.snapshot.attempt == attempt
            ),
            default=-1,
        )

    def resumed_step(self, attempt: int) -> int | None:
        """Where this attempt's ranks began; None: none of them has."""
        begun = (rank.resumed_step for rank in self._ranks(attempt) if rank.in_loop)
        return max(begun, default=None)

    def newest_copies_elsewhere(self) -> dict[int, int]:
        """Rank -> newest step of which another node than this has a copy."""
        newest: dict[int, int] = {}
        for report in self._all():
            if report.node == self.own or report.snapshot is None:
                continue
            for rank, steps in report.snapshot.copies.items():
                newest[int(rank)] = max([newest.get(int(rank), -1), *steps])
        return newest

    def _ranks(self, attempt: int) -> Iterator[RankReport]:
        for report in self._all():
            if report.attempt == attempt:
                yield from report.ranks

    def _all(self) -> Iterator[NodeReport]:
        for text in self.reports.values():
            report = decode(NodeReport, text)
            if report is not None:
                yield report
