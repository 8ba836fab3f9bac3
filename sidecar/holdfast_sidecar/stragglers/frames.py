"""From lines of single ranks to frames: what all ranks told of the same steps.

Lines come late, twice, torn and out of order, and nodes may tell theirs in blocks of different
lengths. Frames are of one attempt, whose steps are numbered anew; a new attempt wants a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.block import Block
from holdfast_sidecar.stragglers.frame import Frame

PATIENCE = 16
"""A block is closed without those who have not told it once half of the ranks told as many newer
ones. Blocks last 0.1 s or more and reports come every second, so a rank of which nothing was heard
for sixteen missed a report or more."""

MOST_BLOCKS = 64
"""Kept open at most: what comes after pushes out the oldest."""

LONGEST_STRIDE = 1 << 20
"""Steps take a microsecond or more and blocks about a second; beyond that a line is torn."""

FAR_LONGER = 8
"""Nodes that see the same steps differ by a power of two or two in how long their blocks are. A
stride that is that many times longer than it was counts once a second line has it: else all would
wait a million steps for the end of a block that one torn line made up."""


class Frames:
    """Puts lines together; keeps `MOST_BLOCKS` blocks at most."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        """Last step of the block -> what was told of it."""
        self._span = 1
        """Steps of a block: the coarsest stride in use."""
        self._closed_up_to = -1
        self._doubtful: StepLine | None = None
        """The newest line of a stride that nobody else had."""
        self._absent: set[int] = set()
        """Who was waited for in vain; not waited for again until a line of theirs comes in time."""

    def take(self, lines: Iterable[StepLine], expected: Collection[int]) -> list[Frame]:
        """The frames that are closed now, oldest first; of `expected` ranks only."""
        ranks = expected if isinstance(expected, (set, frozenset)) else frozenset(expected)
        self._sort_in(lines, ranks)
        awaited = ranks - self._absent if self._absent else ranks
        frames = []
        while self._blocks:
            oldest = min(self._blocks)
            block = self._blocks[oldest]
            if block.told_by(awaited) or self._is_overdue(oldest, awaited):
                frames.append(self._close(oldest, ranks))
                awaited = ranks - self._absent if self._absent else ranks
            elif len(self._blocks) > MOST_BLOCKS:
                del self._blocks[oldest]
            else:
                break
        return [frame for frame in frames if frame.lines]

    def _sort_in(self, lines: Iterable[StepLine], ranks: Collection[int]) -> None:
        blocks, closed, span = self._blocks, self._closed_up_to, self._span
        block, last = None, (0, 0)
        for line in lines:
            step, stride = line.step, line.stride
            if step <= closed or line.rank not in ranks:
                continue
            # Lines of the same steps come in a row.
            if block is None or (step, stride) != last:
                if not _is_whole(step, stride):
                    continue
                borne_out = None
                if stride > span:
                    if stride >= FAR_LONGER * span and len(ranks) > 1:
                        borne_out = self._bear_out(line)
                        if borne_out is None:
                            continue
                    self._change_span(stride)
                    blocks, span = self._blocks, stride
                end = -(-step // span) * span
                block, last = blocks.get(end) or self._open(end), (step, stride)
                if borne_out is not None and borne_out.step > closed:
                    before = -(-borne_out.step // span) * span
                    (blocks.get(before) or self._open(before)).add(borne_out)
            block.add(line)

    def _bear_out(self, line: StepLine) -> StepLine | None:
        """The line before that has as long a stride; None: this is the first, and is kept."""
        first, self._doubtful = self._doubtful, line
        if first is None or first.stride != line.stride or first == line:
            return None
        self._doubtful = None
        return first

    def _open(self, end: int) -> Block:
        after = end - self._span
        block = self._blocks[end] = Block(after, end, end - max(after, self._closed_up_to))
        return block

    def _change_span(self, span: int) -> None:
        """Blocks become longer or shorter: what is open is put together anew."""
        open_blocks = list(self._blocks.values())
        self._span, self._blocks = span, {}
        for line in (line for old in open_blocks for line in old.lines()):
            end = -(-line.step // span) * span
            (self._blocks.get(end) or self._open(end)).add(line)

    def _is_overdue(self, oldest: int, awaited: Collection[int]) -> bool:
        blocks, half = self._blocks, len(awaited) / 2
        if len(blocks) <= PATIENCE:
            return False
        if len(blocks) > MOST_BLOCKS:
            # A torn line tells of a step far ahead, of which nobody else will ever tell.
            is_near = oldest <= self._closed_up_to + 2 * MOST_BLOCKS * self._span
            return is_near or blocks[oldest].ranks >= half
        return sum(b.ranks >= half for step, b in blocks.items() if step > oldest) >= PATIENCE

    def _close(self, step: int, ranks: Collection[int]) -> Frame:
        block = self._blocks.pop(step)
        self._closed_up_to = step
        self._absent = set(ranks).difference(block.told)
        if block.coarsest < self._span:
            coarsest = max(b.coarsest for b in (block, *self._blocks.values()))
            if coarsest < self._span:
                self._change_span(coarsest)
        return block.frame(ranks)


def _is_whole(step: int, stride: int) -> bool:
    """Whether the line covers a block that can exist."""
    return 0 < stride <= LONGEST_STRIDE and stride & (stride - 1) == 0 and step & (stride - 1) == 0
