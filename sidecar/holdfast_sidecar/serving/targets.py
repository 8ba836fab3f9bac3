"""Which sidecars of the job Prometheus is to scrape: those there are, and for an hour those there
were, so that it sees that one is gone. Pure; what outlives this sidecar is in `target_file`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.config.addresses import stays_within
from holdfast_sidecar.records.reports import NodeReport

LISTED_S = 3600.0
"""`up == 0` of a sidecar that is gone is there as long as somebody may be looking into it. A node
that is gone for good would else be an alert for ever."""

SILENT_S = 30.0
"""What is written down as silent: far more than a sidecar needs to be started again."""


@dataclass(frozen=True)
class Target:
    """A node's sidecar, as it was last heard of."""

    address: str
    """host:port, with `https://` before it where that is spoken; empty: nobody else gets there."""
    beat: str
    """By which it is seen to live."""
    silent_s: float = 0.0
    """How long the store has answered without a new beat of it."""


@dataclass
class Targets:
    """Remembers them from reading to reading. Time while the store is away does not count: then
    nobody is heard, and the last list stands."""

    node: str
    """This one, which is on the list whatever the store says."""
    address: str
    by_node: Mapping[str, Target] = field(default_factory=dict)
    is_known: bool = False
    """Whether there is more to tell than of this node: a reading, or what a former one left."""
    boot: str = ""
    """Which start of this machine it is; of another machine a report has another one."""
    left_out: frozenset[str] = frozenset()
    """Nodes that listen for their own machine alone, which is not this one."""
    _read_at_s: float | None = None

    def __post_init__(self) -> None:
        self.by_node = {**self.by_node, self.node: Target(self.address, "")}

    def read(self, reports: Mapping[str, NodeReport], now_s: float) -> None:
        """A reading of the store, at this time on a monotonic clock."""
        passed_s = 0.0 if self._read_at_s is None else max(0.0, now_s - self._read_at_s)
        self._read_at_s, self.is_known = now_s, True
        followed = {**self.by_node}
        others = {*followed, *reports} - {self.node}
        self.left_out = frozenset(n for n in others if self._is_beyond_reach(reports.get(n)))
        for node in others:
            followed[node] = _followed(followed.get(node), reports.get(node), passed_s)
            if node in self.left_out:
                followed[node] = replace(followed[node], address="")
        # Of a report that is still there it has to be known how old it is.
        gone = {n for n, t in followed.items() if n not in reports and t.silent_s >= LISTED_S}
        self.by_node = {node: target for node, target in followed.items() if node not in gone}

    def _is_beyond_reach(self, report: NodeReport | None) -> bool:
        """Under a loopback address of another machine somebody else is met on this one."""
        if report is None or not (self.boot and report.boot and report.boot != self.boot):
            return False
        return stays_within(report.metrics_address.removeprefix("https://"))

    def pause(self) -> None:
        """The store does not answer: what passes from here on is nobody's silence."""
        self._read_at_s = None

    def listed(self) -> dict[str, str]:
        """node -> address, of those to be scraped."""
        known = sorted(self.by_node.items())
        return {n: t.address for n, t in known if t.address and t.silent_s < LISTED_S}


def _followed(known: Target | None, report: NodeReport | None, passed_s: float) -> Target:
    """One of them is None at most."""
    if report is None:
        assert known is not None
        return replace(known, silent_s=known.silent_s + passed_s)
    beat = f"{report.incarnation} {report.beat}"
    address = report.metrics_address or (known.address if known else "")
    if known is None or known.beat != beat:
        return Target(address, beat)
    return replace(known, address=address, silent_s=known.silent_s + passed_s)


def as_discovered(listed: Iterable[tuple[str, str]], run: str) -> list[dict[str, object]]:
    """The list as Prometheus' HTTP service discovery reads it: one group for each node."""
    return [
        {"targets": [address.removeprefix("https://")], "labels": _labels(run, node, address)}
        for node, address in listed
    ]


def _labels(run: str, node: str, address: str) -> dict[str, str]:
    scheme = {"__scheme__": "https"} if address.startswith("https://") else {}
    return {"run": run, "node": node, **scheme}
