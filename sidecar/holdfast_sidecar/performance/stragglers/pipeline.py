"""Pipeline stages compared with one another: one that has more to do than the others, on all ranks.

Within a stage ranks are compared by the detector; here a whole stage is, by the own time of its
middle rank. What its ranks do not have in common is no imbalance.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers.causes import ENOUGH, Named, advise, name_cause
from holdfast_sidecar.performance.stragglers.frame import Excess, GroupMembership, StepFrame
from holdfast_sidecar.performance.stragglers.peers import PARTS
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.role import usual_parts
from holdfast_sidecar.performance.stragglers.signals import Signals, SlowCase, hear, middle
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.performance.stragglers.trouble import SlownessTrouble, lasts
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import SlowCause, StepLine

LEAST = 0.1
"""Beyond the mean of the others: layers are dealt out whole, so that a few percent can't be
helped."""

LINGERS = 0.7
"""What was told stays so down to this part of it."""

FORGETS = 0.95
"""Of what was known, kept per step: some twenty steps make the mean."""

LEAST_STEPS = 24
"""An imbalance is in the script and stays, so there is no hurry: by now a stage of one rank, whose
steps spread by 5 %, is known to some 2 %."""

LEAST_FRAMES = 12
"""...and so many, where frames are longer: never on one observation."""

MOST_OF_FRAME = 0.2
"""Of the mean, however many steps a frame has, once there are several."""

MOST_ABOVE = 1.3
"""Times the mean, as which a frame counts at most: a long hiccup, or one rank of a stage telling
alone, is no imbalance."""

MEMBERS = 16
"""Of a stage that are looked at."""

ALIKE = 0.5
"""Of its excess: more than that, the stage's ranks may not differ among themselves."""


@dataclass(frozen=True)
class HeavyStage:
    """A stage that takes longer than the others, on all of its ranks."""

    stage: int
    ranks: tuple[int, ...]
    slowdown: float
    own_us: float
    others_us: float
    even: Mapping[int, float]
    """Stage -> what it would take if they were alike, beside what it takes."""
    since_step: int
    part: str
    parts_us: Mapping[str, float]
    """Beyond those of the other stages."""


@dataclass
class _Stage:
    own_us: float = 0.0
    spread_us: float = 0.0
    frames: int = 0

    def take(self, own: float, spread: float, kept: float) -> None:
        self.frames += 1
        share = max(1 / self.frames, min(1 - kept, MOST_OF_FRAME))
        own = min(own, MOST_ABOVE * self.own_us) if self.frames > 1 else own
        self.own_us += share * (own - self.own_us)
        self.spread_us += share * (spread - self.spread_us)


@dataclass
class Stages:
    """Follows the stages of one attempt."""

    unjudged: tuple[str, ...] = ()
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _census: GroupMembership = field(default_factory=GroupMembership)
    _steps: int = 0
    _first_step: int = -1
    _told: tuple[int, int] | None = None
    """(stage, since which step) that was found last."""

    def follow(
        self, frame: StepFrame, places: Mapping[int, RankPlace], slow: Collection[int]
    ) -> HeavyStage | None:
        """The heaviest stage, where it stands out. `slow`: ranks that are slow within theirs."""
        if self._census.read(places):
            members = self._census.by_stage
            self._stages = {s: one for s, one in self._stages.items() if s in members}
        if len(self._census.by_stage) < 2:
            return None
        if not all(line.waits_seen for line in self._some(frame, self._census.by_stage)):
            self.unjudged = (
                "pipeline stages: what is waited for others in the backward pass is not told apart",
            )
            return None
        self.unjudged = ()
        self._take(frame, slow)
        known = [one for one in self._stages.values() if one.frames >= LEAST_FRAMES]
        if self._steps < LEAST_STEPS or not len(known) == len(self._stages) >= 2:
            return None
        return self._judge(frame)

    def _take(self, frame: StepFrame, slow: Collection[int]) -> None:
        steps = frame.step - frame.after_step
        if self._first_step < 0:
            self._first_step = frame.after_step + 1
        self._steps += steps
        for stage in self._census.by_stage:
            own = [float(ln.own_us) for ln in self._some(frame, [stage]) if ln.rank not in slow]
            if own:
                middle = statistics.median(own)
                spread = statistics.median(abs(one - middle) for one in own)
                self._stages.setdefault(stage, _Stage()).take(middle, spread, FORGETS**steps)

    def _some(self, frame: StepFrame, stages: Iterable[int]) -> list[StepLine]:
        """Lines of some ranks of these stages."""
        members = self._census.by_stage
        return [
            frame.lines[rank]
            for stage in stages
            for rank in members[stage][:: max(1, len(members[stage]) // MEMBERS)]
            if rank in frame.lines
        ]

    def _judge(self, frame: StepFrame) -> HeavyStage | None:
        heaviest = max(self._stages, key=lambda stage: self._stages[stage].own_us)
        mine = self._stages[heaviest]
        others = [one for stage, one in self._stages.items() if stage != heaviest]
        others_us = statistics.fmean(one.own_us for one in others)
        excess_us = mine.own_us - others_us
        was_told = self._told is not None and self._told[0] == heaviest
        least = LEAST * (LINGERS if was_told else 1.0)
        if excess_us < least * others_us or mine.spread_us > ALIKE * excess_us:
            self._told = None
            return None
        if self._told is None or not was_told:
            self._told = (heaviest, self._first_step)
        parts = self._parts_beyond(frame, heaviest)
        even_us = statistics.fmean(one.own_us for one in self._stages.values())
        return HeavyStage(
            heaviest,
            tuple(self._census.by_stage[heaviest]),
            excess_us / max(1.0, others_us),
            mine.own_us,
            others_us,
            {stage: even_us / max(1.0, one.own_us) for stage, one in self._stages.items()},
            self._told[1],
            max(parts, key=lambda name: parts[name]),
            parts,
        )

    def _parts_beyond(self, frame: StepFrame, heaviest: int) -> dict[str, float]:
        """What each part takes there beyond the other stages."""
        mine = self._some(frame, [heaviest])
        theirs = self._some(frame, [stage for stage in self._census.by_stage if stage != heaviest])
        if not mine or not theirs:
            return dict.fromkeys(PARTS, 0.0)
        own, others = usual_parts(mine), usual_parts(theirs)
        return {name: a - b for name, a, b in zip(PARTS, own, others, strict=True)}


# The trouble of a pipeline stage that takes longer than the others.

BY_LAYERS = frozenset({SlowCause.COMPUTE, SlowCause.DATA_LOADING, SlowCause.UNKNOWN})
"""What is guessed of one rank beside its peers is no guess about a whole stage: it has other layers
to compute, and the first stage alone loads data."""

SURE = 0.9
SURE_OF_ONE = 0.6
"""A stage of one rank may have a slow rank instead, and no peer to compare it with."""


def heavy_stages(
    heavy: HeavyStage | None,
    frame: StepFrame,
    places: Mapping[int, RankPlace],
    findings: Sequence[Finding],
    model: StepModel,
) -> list[SlownessTrouble]:
    """None or one: layers, or what all ranks of the stage have in common."""
    if heavy is None:
        return []
    nodes = {places[rank].node for rank in heavy.ranks}
    named = _why(heavy, frame, places, findings, len(nodes) == 1)
    # Layers that go elsewhere are still computed; what is wrong with a node is not.
    is_uneven = named.cause is SlowCause.PIPELINE
    wanted = heavy.even if is_uneven else {heavy.stage: heavy.others_us / max(1.0, heavy.own_us)}
    times = model.stage_times()
    quick = {stage: times[stage] * ratio for stage, ratio in wanted.items() if stage in times}
    return [
        SlownessTrouble(
            ranks=heavy.ranks,
            node=nodes.pop() if len(nodes) == 1 else "",
            role=f"stage {heavy.stage}",
            named=named,
            slowdown=heavy.slowdown,
            confidence=named.confidence,
            since_step=heavy.since_step,
            is_persistent=lasts(heavy.since_step, frame.step, model.total_us / 1e6),
            accounts=(f"stage {heavy.stage}",),
            quick=model.with_stages(quick),
            blames_ranks=not is_uneven,
        )
    ]


def _why(
    heavy: HeavyStage,
    frame: StepFrame,
    places: Mapping[int, RankPlace],
    findings: Sequence[Finding],
    is_one_node: bool,
) -> Named:
    own, others = _signals(heavy, frame)
    place = places[heavy.ranks[0]]
    if own is not None and others is not None:
        # What is wrong with one node explains nothing of a stage that lies on several.
        witness = hear(findings if is_one_node else (), place)
        named = name_cause(SlowCase(_as_excess(heavy), own, others, witness))
        if named.cause not in BY_LAYERS and named.confidence >= ENOUGH:
            return named
    text = (
        f"stage {heavy.stage} takes {heavy.own_us / 1e3:.1f} ms of a step by itself, the others "
        f"{heavy.others_us / 1e3:.1f} ms, most of it more in {heavy.part}"
    )
    if len(heavy.ranks) == 1:
        alone = f"rank {heavy.ranks[0]} is alone in it, and may be slow itself"
        return _pipeline(SURE_OF_ONE, text, alone, heavy)
    return _pipeline(SURE, text, f"its {len(heavy.ranks)} ranks are alike", heavy)


def _pipeline(sure: float, text: str, more: str, heavy: HeavyStage) -> Named:
    return Named(SlowCause.PIPELINE, sure, (text, more), advise(SlowCause.PIPELINE), heavy.part)


def _signals(heavy: HeavyStage, frame: StepFrame) -> tuple[Signals | None, Signals | None]:
    own = frozenset(heavy.ranks)
    mine = [line for rank, line in frame.lines.items() if rank in own]
    theirs = [line for rank, line in frame.lines.items() if rank not in own]
    return middle(mine), middle(theirs)


def _as_excess(heavy: HeavyStage) -> Excess:
    return Excess(
        rank=heavy.ranks[0],
        role="",
        slowdown=heavy.slowdown,
        confidence=1.0,
        since_step=heavy.since_step,
        steps=0,
        own_us=heavy.own_us,
        peers_us=heavy.others_us,
        parts_us=heavy.parts_us,
    )
