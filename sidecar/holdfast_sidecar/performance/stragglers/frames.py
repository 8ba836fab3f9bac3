"""From lines of single ranks to frames: what all ranks told of the same steps.

Lines come late, twice, torn and out of order, and nodes may tell theirs in blocks of different
lengths. Frames are of one attempt, whose steps are numbered anew; a new attempt wants a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast_sidecar.performance.stragglers.frame import StepBlock, StepFrame
from holdfast_sidecar.performance.stragglers.groups import FoundStages, places_on, stages_of
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import StepLine, parse_all

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


class FrameAssembler:
    """Puts lines together; keeps `MOST_BLOCKS` blocks at most."""

    def __init__(self) -> None:
        self._blocks: dict[int, StepBlock] = {}
        """Last step of the block -> what was told of it."""
        self._span = 1
        """Steps of a block: the coarsest stride in use."""
        self._closed_up_to = -1
        self._doubtful: StepLine | None = None
        """The newest line of a stride that nobody else had."""
        self._absent: set[int] = set()
        """Who was waited for in vain; not waited for again until a line of theirs comes in time."""

    def take(self, lines: Iterable[StepLine], expected: Collection[int]) -> list[StepFrame]:
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

    def _open(self, end: int) -> StepBlock:
        after = end - self._span
        block = self._blocks[end] = StepBlock(after, end, end - max(after, self._closed_up_to))
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

    def _close(self, step: int, ranks: Collection[int]) -> StepFrame:
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


# What all nodes tell of their ranks, put together for whoever judges them. Pure.
#
# Hundreds of nodes report several times a second, and most of each report was told before: only
# what is new is parsed, and what stays the same is answered as the same object.

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
    places: Mapping[int, RankPlace] = field(default_factory=dict)

    def has_moved(self) -> bool:
        """Whether its ranks say another thing of where they stand than when this was asked last."""
        before, self.stands = self.stands, list(map(_stand, self.ranks))
        return self.stands != before


@dataclass
class LineCollector:
    """Of one attempt; lines wait in it until they are judged."""

    places: Mapping[int, RankPlace] = field(default_factory=dict)
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
