"""What is heard of those who are slow: their signals beside those of healthy peers, frame by frame,
and the cause that most frames agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import Cause, StepLine
from holdfast_sidecar.stragglers.case import Case
from holdfast_sidecar.stragglers.causes import Named, name_cause
from holdfast_sidecar.stragglers.census import Census
from holdfast_sidecar.stragglers.frame import Excess, Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.signals import (
    SAMPLE,
    Signals,
    blend,
    middle,
    read,
    strongest,
)
from holdfast_sidecar.stragglers.witness import hear

FORGETS = 0.9
"""Of the votes that frames gave, kept per frame: some ten make the verdict."""

OUTVOTES = 1.5
"""A cause that has so many times the votes of the one that was told takes its place: two that are
nearly alike don't take turns."""

A_GUESS_COUNTS = 0.4
"""Of a vote. Counters are read once a second and steps may be shorter, so that the first frames of
a slowness come before the signal that explains it."""

FEWEST_MATES = 2
"""Healthy ranks on the same node, before their being well speaks for the node."""


@dataclass
class _File:
    """Of one slow rank."""

    own: Signals | None = None
    peers: Signals | None = None
    votes: dict[Cause, float] = field(default_factory=dict)
    told: Cause | None = None
    named: dict[Cause, Named] = field(default_factory=dict)
    """Cause -> as it was named last."""

    def vote(self, named: Named) -> Named:
        """The verdict after one more frame."""
        self.votes = {cause: FORGETS * votes for cause, votes in self.votes.items()}
        weight = 1.0 if named.is_measured else A_GUESS_COUNTS
        self.votes[named.cause] = self.votes.get(named.cause, 0.0) + weight
        self.named[named.cause] = named
        most = max(self.votes, key=lambda cause: self.votes[cause])
        if self.told is None or self.votes[most] > OUTVOTES * self.votes[self.told]:
            self.told = most
        return self.named[self.told]


@dataclass
class Hearing:
    """Follows the slow ranks of one attempt."""

    _files: dict[int, _File] = field(default_factory=dict)
    _census: Census = field(default_factory=Census)

    def follow(
        self,
        frame: Frame,
        places: Mapping[int, Place],
        excesses: Sequence[Excess],
        findings: Sequence[Finding],
    ) -> dict[int, Named]:
        """Slow rank -> its cause, as it stands now."""
        slow = {excess.rank: excess for excess in excesses}
        self._files = {rank: self._files.get(rank, _File()) for rank in slow}
        if not slow:
            return {}
        self._census.read(places)
        company = _Company(frame.lines, slow, self._census.by_role, self._census.by_node)
        steps = frame.step - frame.after_step
        verdicts = {}
        for rank, excess in slow.items():
            place = places.get(rank, Place(rank, ""))
            file = self._files[rank]
            if rank in frame.lines:
                file.own = blend(file.own, read(frame.lines[rank]), steps)
                peers = company.healthy_beside(place)
                if peers is not None:
                    file.peers = blend(file.peers, peers, steps)
            if file.own is not None:
                witness = hear(findings, place, company.is_slow_together(place.node))
                case = Case(excess, file.own, file.peers, witness)
                verdicts[rank] = file.vote(name_cause(case))
        return verdicts


@dataclass
class _Company:
    """Who is well in this frame, by role and by node; worked out as it is asked for."""

    lines: Mapping[int, StepLine]
    slow: Mapping[int, Excess]
    by_role: Mapping[str, list[int]]
    by_node: Mapping[str, list[int]]
    _of_roles: dict[str, Signals | None] = field(default_factory=dict)
    _of_nodes: dict[tuple[str, str], Signals | None] = field(default_factory=dict)

    def healthy_beside(self, place: Place) -> Signals | None:
        """The middle of its healthy peers, or of its node's where a signal is louder."""
        if place.role not in self._of_roles:
            healthy = self._well(self.by_role.get(place.role, ()))
            everyone = healthy or self._well(self.lines)
            self._of_roles[place.role] = middle(everyone)
        key = (place.node, place.role)
        if key not in self._of_nodes:
            mates = self._well(self.by_node.get(place.node, ()))
            self._of_nodes[key] = middle(mates) if len(mates) >= FEWEST_MATES else None
        return strongest(self._of_roles[place.role], self._of_nodes[key])

    def is_slow_together(self, node: str) -> bool:
        """Whether at least half of the node's ranks are slow."""
        ranks = self.by_node.get(node, [])
        return 2 * sum(rank in self.slow for rank in ranks) >= len(ranks)

    def _well(self, ranks: Iterable[int]) -> list[StepLine]:
        well = [rank for rank in ranks if rank not in self.slow and rank in self.lines]
        return [self.lines[rank] for rank in well[:: max(1, len(well) // SAMPLE)]]
