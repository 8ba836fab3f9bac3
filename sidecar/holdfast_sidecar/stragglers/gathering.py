"""What all nodes tell of their ranks, put together for whoever judges them. Pure.

Hundreds of nodes report several times a second, and most of each report was told before: only what
is new is parsed, and what stays the same is answered as the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import StepLine, parse_all
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.places import FoundStages, places_on, stages_of

_stand: Callable[[RankReport], tuple[object, ...]] = attrgetter(
    "rank", "alive", "ending", "layout", "groups", "memory_total", "is_gloo_alone"
)


@dataclass
class _Node:
    """What was heard of one."""

    ranks: Sequence[RankReport] = ()
    findings: Sequence[Finding] = ()
    report: NodeReport | None = None
    told: frozenset[str] = frozenset()
    """The lines in its newest report."""
    is_new: bool = True
    """It said something since places were looked for."""
    stands: list[tuple[object, ...]] | None = None
    """What its places came from."""
    places: Mapping[int, Place] = field(default_factory=dict)

    def has_moved(self) -> bool:
        """Whether its ranks say another thing of where they stand than when this was asked last."""
        before, self.stands = self.stands, list(map(_stand, self.ranks))
        return self.stands != before


@dataclass
class Gathering:
    """Of one attempt; lines wait in it until they are judged."""

    places: Mapping[int, Place] = field(default_factory=dict)
    """The same object as long as nobody moved, came or went."""
    _lines: list[StepLine] = field(default_factory=list)
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _roles: Mapping[int, str] = field(default_factory=dict)
    _stages: FoundStages = field(default_factory=dict)
    _newest: dict[int, int] = field(default_factory=dict)
    """rank -> the last step of its newest line."""
    _judged_up_to: int = -1
    _has_lost: bool = False
    """Whether a node went since places were looked for."""

    def hear(self, node: str, ranks: Sequence[RankReport], findings: Sequence[Finding]) -> None:
        """What our own node has to say now; its lines come by `add`."""
        known = self._nodes.setdefault(node, _Node())
        known.ranks, known.findings, known.is_new = ranks, findings, True

    def hear_others(self, nodes: Mapping[str, NodeReport], own_node: str, attempt: int) -> None:
        """All reports there are; those of other attempts are left out."""
        others = {
            name: report
            for name, report in nodes.items()
            if name != own_node and report.attempt == attempt
        }
        for gone in self._nodes.keys() - others.keys() - {own_node}:
            del self._nodes[gone]
            self._has_lost = True
        for name, report in others.items():
            known = self._nodes.setdefault(name, _Node())
            if report is not known.report:
                self._hear(known, report)

    def add(self, lines: Iterable[StepLine]) -> None:
        """Lines that nobody has judged yet."""
        newest = self._newest
        for line in lines:
            self._lines.append(line)
            if line.step > newest.get(line.rank, -1):
                newest[line.rank] = line.step

    def look(self, roles: Mapping[int, str]) -> None:
        """Find places anew where something changed. roles: rank -> what its launcher says."""
        moved = {name for name, known in self._nodes.items() if known.is_new and known.has_moved()}
        for known in self._nodes.values():
            known.is_new = False
        if moved or self._has_lost or roles != self._roles:
            self._place(moved, roles)
        self._roles, self._has_lost = roles, False

    @property
    def is_new(self) -> bool:
        """Whether lines wait."""
        return bool(self._lines)

    @property
    def is_whole(self) -> bool:
        """Whether all ranks have told of steps that nobody has judged yet."""
        return self._told_by_all() > self._judged_up_to

    def take(self) -> list[StepLine]:
        """The lines that wait, once."""
        taken, self._lines = self._lines, []
        self._judged_up_to = max(self._judged_up_to, self._told_by_all())
        return taken

    def reports(self) -> dict[int, RankReport]:
        """By rank."""
        return {report.rank: report for known in self._nodes.values() for report in known.ranks}

    def findings(self) -> list[Finding]:
        """What all nodes found, but for who is slow."""
        return [
            finding
            for known in self._nodes.values()
            for finding in known.findings
            if finding.kind is not Kind.STRAGGLER
        ]

    def _hear(self, known: _Node, report: NodeReport) -> None:
        fresh = [text for text in report.steps if text not in known.told]
        self.add(parse_all(fresh))
        known.ranks, known.findings = report.ranks, report.findings
        known.report, known.told, known.is_new = report, frozenset(report.steps), True

    def _place(self, moved: Collection[str], roles: Mapping[int, str]) -> None:
        """Find the places of these nodes' ranks; of all, where other roles or stages are theirs."""
        stages = stages_of(rank for known in self._nodes.values() for rank in known.ranks)
        is_of_all = roles != self._roles or stages != self._stages
        self._stages = stages
        for name, known in self._nodes.items():
            if is_of_all or name in moved:
                known.places = places_on(name, known.ranks, roles, stages)
        everywhere = [known.places for known in self._nodes.values()]
        self.places = {rank: place for places in everywhere for rank, place in places.items()}

    def _told_by_all(self) -> int:
        """The last step that every rank has told of; -1: some told of none."""
        newest = self._newest
        return min([newest.get(rank, -1) for rank in self.places], default=-1)
