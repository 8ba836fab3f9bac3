"""What this node's ranks say of where they stand: two small files beside each page.

They are written when process groups and device meshes are made, and read when they changed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.contract import page
from holdfast_sidecar.components.gpu.ownership import GpuOwnership
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import StragglerSettings
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.performance.stragglers.frames import LineCollector
from holdfast_sidecar.performance.stragglers.groups import read_roles
from holdfast_sidecar.performance.stragglers.load import count, surround
from holdfast_sidecar.performance.stragglers.placement import RankPlace, spell_groups, spell_layout
from holdfast_sidecar.performance.stragglers.windows import NodeWindows
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.reports import NodeReport, ProbeHealth, RankReport
from holdfast_sidecar.records.steps import (
    NOWHERE,
    RankPlacement,
    Slowness,
    SlownessReport,
    StepLine,
    parse,
)
from holdfast_sidecar.store.orders import Orders

logger = logging.getLogger(__name__)

LAYOUTS_EVERY_S = 1.0

MOST_BYTES = 1 << 20
"""The ranks of a hundred groups of a thousand are written in half of that."""

Version = tuple[int, int, int] | None
"""Of a file; None: there is none."""


@dataclass
class LayoutsProbe:
    """Reads each file once as long as it stays the same."""

    held: Callable[[], Sequence[RankPage]]
    name: str = "layouts"
    _known: dict[Path, tuple[tuple[Version, Version], RankPlacement]] = field(default_factory=dict)

    def read(self, now_s: float) -> dict[int, RankPlacement]:
        """By rank; those that say nothing are left out."""
        self._known = {held.path: self._look_at(held) for held in self.held()}
        ranks = {held.identity.rank: self._known[held.path][1] for held in self.held()}
        return {rank: standing for rank, standing in ranks.items() if standing != NOWHERE}

    def _look_at(self, held: RankPage) -> tuple[tuple[Version, Version], RankPlacement]:
        path = held.path
        layout, groups = path.with_suffix(page.LAYOUT_SUFFIX), path.with_suffix(page.GROUPS_SUFFIX)
        versions = (_version(layout), _version(groups))
        known = self._known.get(path)
        if known is not None and known[0] == versions:
            return known
        in_groups = read_if_any(groups, MOST_BYTES)
        standing = RankPlacement(
            spell_layout(read_if_any(layout, MOST_BYTES), in_groups, held.identity.rank),
            tuple(spell_groups(in_groups)),
        )
        return versions, standing


def _version(path: Path) -> Version:
    try:
        facts = path.stat()
    except OSError:
        return None
    return (facts.st_ino, facts.st_mtime_ns, facts.st_size)


# Follows the steps of this node's ranks, and where it is ours to judge, who of all is slow.
#
# The leading node's sidecar judges; while the store is away each one does, of its own ranks. What
# it came to is told to all, and whoever leads next goes on from there.

# Has all ranks' steps judged: gathers them, asks the judge when there is enough to judge, and sees
# to it that a judge that fails takes nothing else with it.

EVERY_S = 1.0
"""How often at most, unless all ranks have told of more steps: lines of some are compared with
nothing until the others have told theirs, or were waited for long enough."""


class StragglerJudge(Protocol):
    """Who is slow: `performance.stragglers.judge.Judge`."""

    def follow(
        self,
        lines: Iterable[StepLine],
        places: Mapping[int, RankPlace],
        reports: Mapping[int, RankReport],
        findings: Sequence[Finding],
        attempt: int,
        moment: Moment,
    ) -> SlownessReport | None:
        """How the job stands after these lines; None: nothing can be said of it yet."""

    def resume(self, standing: SlownessReport) -> None:
        """Go on from what was lost until then."""


@dataclass
class Judging:
    """One term of judging: as long as it is this sidecar's."""

    make_judge: Callable[[], StragglerJudge]
    standing: SlownessReport | None = None
    """As it was judged last; at first, where others left it."""
    gathering: LineCollector = field(default_factory=LineCollector)
    attempt: int = -1
    runner: ProbeRunner[SlownessReport | None] = field(init=False)
    name: str = "slowness"
    _judge: StragglerJudge = field(init=False)
    _moment: Moment = field(default_factory=lambda: Moment(0.0, 0.0, ""))
    _due_s: float = -math.inf

    def __post_init__(self) -> None:
        self.runner = ProbeRunner(self, every_s=0.0)
        self._begin()

    def turn_to(self, attempt: int) -> bool:
        """Whether this attempt is another one: nothing was gathered of it yet."""
        if attempt == self.attempt:
            return False
        self.attempt, self.gathering = attempt, LineCollector()
        return True

    def follow(self, moment: Moment) -> SlownessReport | None:
        """How the job stands, judged anew if it is time."""
        gathered = self.gathering
        if gathered.is_new and (moment.now_s >= self._due_s or gathered.is_whole):
            self._due_s, self._moment = moment.now_s + EVERY_S, moment
            self.standing = self.runner.read(moment.now_s) or self.standing
            if not self.runner.health.is_up:
                self._begin()
        return self.standing

    def read(self, now_s: float) -> SlownessReport | None:
        """One judgement. Raises whatever the judge does, ValueError for what can't be told."""
        gathered = self.gathering
        standing = self._judge.follow(
            gathered.take(),
            gathered.places,
            gathered.reports(),
            gathered.findings(),
            self.attempt,
            self._moment,
        )
        if standing is not None:
            encode(standing)
        return standing

    def _begin(self) -> None:
        self._judge = self.make_judge()
        if self.standing is not None:
            self._judge.resume(self.standing)


# Who is slow, as findings: from how the job stands, as it was judged for all ranks together.

FRESH_S = 60.0
FRESH_STEPS = 30.0
"""After so long, and so many steps of the usual length, without a judgement the job does something
else or hangs: who was slow before is no trouble of that. A frame has 16 steps at most where they
are shorter than seconds, and one or two where they are longer."""


def find_slow(
    standing: SlownessReport | None, attempt: int, settings: StragglerSettings, now_unix_s: float
) -> Iterator[Finding]:
    """One per trouble that stands in this attempt; told by the leader about all nodes."""
    if standing is None or standing.attempt != attempt or not is_fresh(standing, now_unix_s):
        return
    for slow in standing.slow:
        if max(slow.slowdown, slow.gain) >= settings.least_slowdown:
            yield _tell(slow)


def is_fresh(standing: SlownessReport, now_unix_s: float) -> bool:
    """Whether it may still be so."""
    step_s = 0.0 if standing.efficiency is None else standing.efficiency.step_s or 0.0
    return now_unix_s - standing.at_unix_s <= max(FRESH_S, FRESH_STEPS * step_s)


def _tell(slow: Slowness) -> Finding:
    return Finding(
        kind=Kind.STRAGGLER,
        node=slow.node,
        since_unix_s=slow.since_unix_s,
        confidence=slow.confidence,
        ranks=list(slow.ranks),
        evidence=[*slow.evidence, *([slow.advice] if slow.advice else [])],
        what=slow.cause.value,
    )


@dataclass(frozen=True)
class OwnNode:
    """What this node has to say of itself, beside its lines."""

    attempt: int
    """The one to be judged; -1: none is under way."""
    ranks: Sequence[RankReport]
    """Those that are in it: none where this node is a spare, or was put outside."""
    findings: Sequence[Finding]


@dataclass
class SlownessAttention:
    """One sidecar's. Without a judge steps are told, and nobody is judged here."""

    settings: StragglerSettings = field(default_factory=StragglerSettings)
    make_judge: Callable[[], StragglerJudge] | None = None
    steps: list[str] = field(default_factory=list)
    """What others are told of this node's ranks."""
    standing: SlownessReport | None = None
    """What was judged here last, until whoever leads has judged."""
    _windows: NodeWindows = field(default_factory=NodeWindows)
    _fresh: list[StepLine] = field(default_factory=list)
    """Lines that came with the newest look."""
    _judging: Judging | None = None
    _leads: bool = False
    """Also while the store is away, if it did before."""

    def see(
        self,
        ranks: Mapping[int, RankHistory],
        machine: MachineReading,
        gpus: GpuOwnership,
        moment: Moment,
    ) -> None:
        """Take in the new records. ranks: those that were looked at just now."""
        if self.settings.enabled:
            looks = [history.look for history in ranks.values()]
            around = surround(looks, machine, gpus)
            self._fresh = self._windows.follow(looks, count(looks, machine), around)
            self.steps = self._windows.tell(moment.now_s)

    def judge(self, orders: Orders, own: OwnNode, moment: Moment) -> list[Finding]:
        """Who is slow, where that is ours to say."""
        if not self.settings.enabled or self.make_judge is None or own.attempt < 0:
            return []
        nodes = (orders.nodes or {}) if orders.store_up else {}
        if orders.store_up and not orders.is_leader:
            self._stand_down(orders, nodes)
            return []
        if orders.is_leader and not self._leads:
            self._judging, self._leads = None, True
        judging = self._judging or self._begin(self.make_judge, nodes)
        if judging.turn_to(own.attempt) and own.ranks:
            judging.gathering.add(line for text in self.steps if (line := parse(text)) is not None)
        self._gather(judging, orders, own, moment.node)
        self.standing = judging.follow(moment)
        return list(find_slow(self.standing, own.attempt, self.settings, moment.now_unix_s))

    def health(self) -> tuple[ProbeHealth, ...]:
        """How the judging fares, where it is done here."""
        return () if self._judging is None else (self._judging.runner.health,)

    def _begin(
        self, make_judge: Callable[[], StragglerJudge], nodes: Mapping[str, NodeReport]
    ) -> Judging:
        """Totals only grow: who told the largest judged last, or took over from who did."""
        told = [self.standing, *(node.slow for node in nodes.values())]
        known = [standing for standing in told if standing is not None]
        newest = max(known, key=lambda standing: standing.watched_s, default=None)
        self._judging = Judging(make_judge, newest)
        return self._judging

    def _gather(self, judging: Judging, orders: Orders, own: OwnNode, node: str) -> None:
        gathering = judging.gathering
        if own.ranks:
            gathering.add(self._fresh)
        gathering.hear(node, own.ranks, own.findings)
        if not orders.store_up:
            gathering.hear_others({}, node, own.attempt)
        elif orders.nodes is not None:
            gathering.hear_others(orders.nodes, node, own.attempt)
        gathering.look(read_roles(orders.plan, own.attempt))

    def _stand_down(self, orders: Orders, nodes: Mapping[str, NodeReport]) -> None:
        """What was judged here is told until the leader tells its own, so that it can go on from
        there."""
        self._judging, self._leads = None, False
        leader = nodes.get(orders.lease.candidate.rpartition("/")[0])
        if leader is not None and leader.slow is not None:
            self.standing = None
