"""The lines of all ranks for the same steps, and one rank's excess over its peers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.placement import PIPELINE, RankPlace
from holdfast_sidecar.records.steps import StepLine

LONGEST_US = 3_600_000_000
"""An hour for one step: no step, but a clock that was set."""


class Rare(NamedTuple):
    """What a rank evaluated or saved, microseconds of a step in the mean over all of a frame."""

    lost_us: int
    evaluated_us: int


@dataclass(frozen=True)
class StepFrame:
    """What all ranks told of the steps after `after_step` up to `step`."""

    after_step: int
    step: int
    lines: Mapping[int, StepLine]
    """rank -> its means over the frame; ranks that told nothing of it, or had no ordinary step in
    it, are left out."""
    rare: Mapping[int, Rare] = field(default_factory=dict)
    """rank -> what it did rarely; of those that did, with or without an ordinary step."""

    def without(self, ranks: Collection[int]) -> StepFrame:
        """The same, had these told nothing."""
        if not ranks:
            return self
        lines = {rank: line for rank, line in self.lines.items() if rank not in ranks}
        return replace(self, lines=lines)

    @cached_property
    def own_us(self) -> Mapping[int, float]:
        """rank -> its own work in a step; as `StepLine.own_us`, for thousands and several."""
        found = {}
        for rank, line in self.lines.items():
            data, transfer, forward, backward, optimizer, other, waits_seen = _OWN(line)
            own = data + transfer + forward + optimizer + other
            found[rank] = float(own + backward if waits_seen else own)
        return found


_OWN = itemgetter(
    *(
        StepLine._fields.index(name)
        for name in ("data", "transfer", "forward", "backward", "optimizer", "other", "waits_seen")
    )
)


@dataclass(frozen=True)
class Excess:
    """A rank that takes longer than its peers, and since when. Shares are parts of one."""

    rank: int
    role: str
    slowdown: float
    """Own time beyond what its peers' says it should be, by that."""
    confidence: float
    since_step: int
    steps: int
    """Steps that were seen since."""
    own_us: float
    """Its own time, mean of the newest steps."""
    peers_us: float
    """What it would be by its peers' and its own work."""
    parts_us: Mapping[str, float] = field(default_factory=dict)
    """Part of a step -> its own beyond that of its peers (their median), mean of those steps."""
    work: float = 1.0
    """Its work beside its peers': 1.5 is half as much again; 1 where nothing is known of it."""
    by_work: float = 0.0
    """What of its time beyond its peers' more work explains, as a part of theirs."""
    is_by_work_alone: bool = False
    """It was given more, and is as quick with it as its peers would be: no slow rank."""
    is_persistent: bool = False

    @property
    def usual_us(self) -> float:
        """What its own time would be, had it no more to do than its peers and were as quick."""
        return self.peers_us / max(0.1, 1 + self.by_work)


# Lines of the same steps while some of them are still awaited, and one line out of several.

FEWEST = 0.5
"""A rank that told of fewer of the block's steps than that is left out: a mean over other steps
than its peers' would be compared with theirs."""

# Everything up to the sum of squares is a mean over ordinary steps; the rest is over all steps.
_MEANS = range(StepLine._fields.index("total"), StepLine._fields.index("squares") + 1)
_OVER_ALL = range(StepLine._fields.index("lost"), len(StepLine._fields))


class StepBlock:
    """The steps after `after_step` up to `step`, as far as they were told."""

    __slots__ = ("_needed", "_pieces", "after_step", "step", "told")

    def __init__(self, after_step: int, step: int, needed: int) -> None:
        self.after_step = after_step
        self.step = step
        self._needed = needed
        """Steps that are not in an earlier frame already."""
        self.told: dict[int, StepLine] = {}
        """Rank -> its line of the whole block."""
        self._pieces: dict[int, dict[int, StepLine]] = {}
        """Rank -> last step -> its line of a part of the block."""

    @property
    def ranks(self) -> int:
        """How many told of all of it."""
        return len(self.told)

    @property
    def coarsest(self) -> int:
        """The longest stride in which a rank told it."""
        pieces = (line.stride for some in self._pieces.values() for line in some.values())
        whole = self.step - self.after_step
        if any(line.rank not in self._pieces for line in self.told.values()):
            return whole
        return max(pieces, default=whole)

    def add(self, line: StepLine) -> None:
        """One more line, perhaps for the second time."""
        span = self.step - self.after_step
        if line.stride == span:
            self.told[line.rank] = line
            return
        pieces = self._pieces.setdefault(line.rank, {})
        pieces[line.step] = line
        if sum(piece.stride for piece in pieces.values()) >= self._needed:
            self.told[line.rank] = put_together(list(pieces.values()), self.step, span)

    def told_by(self, ranks: Set[int]) -> bool:
        """Whether all of them told all of it."""
        return self.told.keys() >= ranks

    def lines(self) -> Iterator[StepLine]:
        """All that was told, in pieces as it came."""
        yield from (line for line in self.told.values() if line.rank not in self._pieces)
        for pieces in self._pieces.values():
            yield from pieces.values()

    def frame(self, ranks: Collection[int]) -> StepFrame:
        """The block as it stands."""
        span = self.step - self.after_step
        lines = {rank: line for rank, line in self.told.items() if line.steps > 0 and rank in ranks}
        for rank, pieces in self._pieces.items():
            told = sum(piece.stride for piece in pieces.values())
            if rank not in self.told and rank in ranks and told >= FEWEST * self._needed:
                line = put_together(list(pieces.values()), self.step, span)
                if line.steps > 0:
                    lines[rank] = line
        known = [line for rank, line in self.told.items() if rank in ranks]
        return StepFrame(self.after_step, self.step, lines, _rare(known))


def _rare(lines: Iterable[StepLine]) -> dict[int, Rare]:
    """What was compiled is told by rank elsewhere (`recompiling`), and makes no sense in a mean."""
    return {
        line.rank: Rare(line.lost, min(line.lost, line.evaluated))
        for line in lines
        if 0 < line.lost <= LONGEST_US and not line.compiled
    }


def put_together(pieces: Sequence[StepLine], step: int, span: int) -> StepLine:
    """One line of a rank's shorter ones."""
    row = list(pieces[0])
    ordinary = sum(piece.steps for piece in pieces)
    covered = sum(piece.stride for piece in pieces)
    for at in _MEANS:
        row[at] = round(sum(p[at] * p.steps for p in pieces) / ordinary) if ordinary else 0
    for at in _OVER_ALL:
        row[at] = round(sum(p[at] * p.stride for p in pieces) / covered)
    line = StepLine(*row)
    counted = [piece for piece in pieces if piece.steps > 0]
    return line._replace(
        step=step,
        stride=span,
        steps=ordinary,
        compiled=sum(piece.compiled for piece in pieces),
        waits_seen=min((piece.waits_seen for piece in counted), default=0),
        work_reported=min((piece.work_reported for piece in counted), default=0),
        # Not known of some of the steps is not known of the block.
        tokens=line.tokens if all(piece.tokens for piece in counted) else 0,
        squares=line.squares if all(piece.squares for piece in counted) else 0,
        clock_permille=line.clock_permille if all(p.clock_permille for p in pieces) else 0,
    )


# Which ranks share a role, a node or a pipeline stage, counted once per change of places, not per
# frame.


@dataclass
class GroupMembership:
    """Of the places that were read last."""

    by_role: dict[str, list[int]] = field(default_factory=dict)
    by_node: dict[str, list[int]] = field(default_factory=dict)
    by_stage: dict[int, list[int]] = field(default_factory=dict)
    """Both in order; without the ranks that are in no pipeline."""
    _places: Mapping[int, RankPlace] | None = None

    def read(self, places: Mapping[int, RankPlace]) -> bool:
        """Count again if anything is another than before; whether it is. The places are held, and
        nobody changes them there."""
        before, self._places = self._places, places
        if places is before or places == before:
            return False
        self.by_role, self.by_node = {}, {}
        stages: dict[int, list[int]] = {}
        for rank, place in places.items():
            self.by_role.setdefault(place.role, []).append(rank)
            self.by_node.setdefault(place.node, []).append(rank)
            if PIPELINE in place.coordinate:
                stages.setdefault(place.coordinate[PIPELINE], []).append(rank)
        self.by_stage = {stage: sorted(ranks) for stage, ranks in sorted(stages.items())}
        return True
