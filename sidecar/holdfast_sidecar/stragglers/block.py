"""Lines of the same steps while some of them are still awaited, and one line out of several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import LONGEST_US, Frame, Rare

FEWEST = 0.5
"""A rank that told of fewer of the block's steps than that is left out: a mean over other steps
than its peers' would be compared with theirs."""

# Everything up to the sum of squares is a mean over ordinary steps; the rest is over all steps.
_MEANS = range(StepLine._fields.index("total"), StepLine._fields.index("squares") + 1)
_OVER_ALL = range(StepLine._fields.index("lost"), len(StepLine._fields))


class Block:
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

    def frame(self, ranks: Collection[int]) -> Frame:
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
        return Frame(self.after_step, self.step, lines, _rare(known))


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
    for field in _MEANS:
        row[field] = round(sum(p[field] * p.steps for p in pieces) / ordinary) if ordinary else 0
    for field in _OVER_ALL:
        row[field] = round(sum(p[field] * p.stride for p in pieces) / covered)
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
