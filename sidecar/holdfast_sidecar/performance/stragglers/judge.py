"""Who is slow and why, what it costs, what can't be judged: all of it, frame by frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast_sidecar.performance.stragglers.bursts import Bursts
from holdfast_sidecar.performance.stragglers.causes import CauseFinder
from holdfast_sidecar.performance.stragglers.cost import DeferredCost, LostTime, charge
from holdfast_sidecar.performance.stragglers.exchanges import Exchanges, SlowExchange
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.frames import FrameAssembler
from holdfast_sidecar.performance.stragglers.job_pace import JobPace
from holdfast_sidecar.performance.stragglers.peers import alike, own_times, spell_ranks
from holdfast_sidecar.performance.stragglers.pipeline import Stages, heavy_stages
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.recurring import recurring_ranks
from holdfast_sidecar.performance.stragglers.role import RoleWatch
from holdfast_sidecar.performance.stragglers.slow_ranks import slow_links, slow_ranks, suspect
from holdfast_sidecar.performance.stragglers.spells import SpellKind
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.performance.stragglers.trouble import (
    Recompilations,
    SlownessTrouble,
    compilers,
)
from holdfast_sidecar.performance.stragglers.what_if import WhatIfs
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import (
    Efficiency,
    PaceChange,
    Slowness,
    SlownessReport,
    StepLine,
    WhatIf,
)

# Who is slow: each rank against those of its role, step after step.
#
# Never against all ranks, never on one observation, never on missing data: what can't be judged is
# told as such.

MOST_LINES = 8
"""Of what can't be judged; people read them."""

UNKNOWN_STAGE = (
    "they send to one another in each step, and which stage of a pipeline each of them is isn't "
    "known; name what they do with HOLDFAST_ROLE"
)


class Detector:
    """Follows the frames of one attempt."""

    def __init__(self) -> None:
        self._roles: dict[str, RoleWatch] = {}
        self._unjudged: list[str] = []
        self.left_out: set[int] = set()
        """Ranks of the newest frame that can't be judged."""
        self.senseless: set[int] = set()
        """Ranks of whose newest times nothing is to be concluded, by nobody."""

    @property
    def unjudged(self) -> tuple[str, ...]:
        """What could not be judged in the newest frame, and why: one line each."""
        more = len(self._unjudged) - MOST_LINES
        if more <= 0:
            return tuple(self._unjudged)
        return (*self._unjudged[: MOST_LINES - 1], f"{more + 1} more of the same kind")

    def follow(
        self, frame: StepFrame, places: Mapping[int, RankPlace], now_s: float
    ) -> tuple[Excess, ...]:
        """All who are slow now, the slowest first."""
        self._unjudged, self.senseless, self.left_out = [], set(), set()
        if len(frame.lines) == 1:
            self.left_out.update(frame.lines)
            self._unjudged.append("only one rank tells of its steps: nobody to compare it with")
            self.senseless.update(own_times(list(frame.lines.values())).senseless)
            return self._as_told(frame, now_s, self._roles)
        slow: list[Excess] = []
        by_role = self._by_role(frame, places)
        for role, lines in by_role.items():
            watch = self._roles.get(role)
            if watch is None:
                watch = self._roles[role] = RoleWatch(role)
            slow += watch.follow(lines, frame, now_s, len(frame.lines))
            self._unjudged += watch.unjudged
            self.senseless.update(watch.senseless)
            self.left_out |= watch.left_out
        # Whoever was slow is no quicker for telling nothing of a step that was traced or saved.
        slow += self._as_told(frame, now_s, self._roles.keys() - by_role.keys())
        return tuple(sorted(slow, key=lambda excess: (-excess.slowdown, excess.rank)))

    def _as_told(self, frame: StepFrame, now_s: float, roles: Iterable[str]) -> tuple[Excess, ...]:
        """Those of these roles who were slow when somebody last told of them, for a while."""
        return tuple(
            excess
            for role in sorted(roles)
            for excess in self._roles[role].follow((), frame, now_s, len(frame.lines))
        )

    def _by_role(
        self, frame: StepFrame, places: Mapping[int, RankPlace]
    ) -> Mapping[str, list[StepLine]]:
        roles: dict[str, list[StepLine]] = defaultdict(list)
        homeless, unknown = [], []
        for rank, line in frame.lines.items():
            place = places.get(rank)
            if place is None:
                homeless.append(rank)
            elif place.is_unknown_stage:
                unknown.append(line)
            else:
                roles[place.role].append(line)
        if homeless:
            self.left_out.update(homeless)
            self._unjudged.append(f"{spell_ranks(homeless)}: their place is not known yet")
        if unknown:
            self.left_out.update(line.rank for line in unknown)
            ranks = spell_ranks([line.rank for line in unknown])
            self._unjudged.append(f"{ranks}: {UNKNOWN_STAGE}")
            self.senseless.update(own_times(unknown).senseless)
        return roles


MOST_UNJUDGED = 16
"""Lines: more is no news."""


EACH_FRAME_RANKS = 1024
"""Up to so many, efficiency is looked at in each frame; of four times as many in every fifth: it
is no alarm, and takes as long as to find who is slow."""


class EfficiencyFollower(Protocol):
    """Follows how well the machine is used."""

    def begin(self) -> None:
        """Another attempt."""

    def hear(self, lines: Iterable[StepLine]) -> None:
        """All lines, also of steps that are in no frame."""

    def follow(self, frame: StepFrame, places: Mapping[int, RankPlace], ranks: int) -> None:
        """One more frame, of a job of so many ranks."""

    def tell(self, reports: Mapping[int, RankReport]) -> Efficiency:
        """As it stands after the newest frame."""


@dataclass(frozen=True)
class JudgeContext:
    """What is known beside the ranks' steps."""

    places: Mapping[int, RankPlace]
    reports: Mapping[int, RankReport]
    findings: Sequence[Finding]
    moment: Moment


@dataclass
class _Attempt:
    """What is followed within one attempt, and forgotten with it."""

    number: int
    frames: FrameAssembler = field(default_factory=FrameAssembler)
    detector: Detector = field(default_factory=Detector)
    exchanges: Exchanges = field(default_factory=Exchanges)
    hearing: CauseFinder = field(default_factory=CauseFinder)
    bursts: Bursts = field(default_factory=Bursts)
    stages: Stages = field(default_factory=Stages)
    recompilations: Recompilations = field(default_factory=Recompilations)
    what_ifs: WhatIfs = field(default_factory=WhatIfs)
    arrears: DeferredCost = field(default_factory=DeferredCost)
    watched_steps: int = 0
    watched_s: float = 0.0
    pace: JobPace = field(default_factory=JobPace)
    efficiency: Efficiency | None = None
    """None: not worked out yet as of the newest frame that was looked at for it."""
    until_efficiency: int = 0
    """Frames until one is looked at again."""

    def watch(self, frame: StepFrame, model: StepModel) -> float:
        """One more frame; how long it lasted, seconds."""
        steps = frame.step - frame.after_step
        lasted_s = model.total_us * steps / 1e6
        self.watched_steps += steps
        self.watched_s += lasted_s
        return lasted_s


@dataclass(frozen=True)
class _Judged:
    """What one frame showed."""

    frame: StepFrame
    model: StepModel
    troubles: Sequence[SlownessTrouble]
    what_ifs: Sequence[WhatIf]
    change: PaceChange | None


class Judge:
    """Follows the job; a new leader takes over the totals of the one before."""

    def __init__(self, efficiency: EfficiencyFollower | None = None) -> None:
        self._efficiency = efficiency
        self._toll = LostTime()
        self._attempt: _Attempt | None = None
        self._standing: SlownessReport | None = None

    def resume(self, standing: SlownessReport) -> None:
        """Go on from what another leader told last."""
        self._toll.resume(standing)

    def follow(
        self,
        lines: Iterable[StepLine],
        places: Mapping[int, RankPlace],
        reports: Mapping[int, RankReport],
        findings: Sequence[Finding],
        attempt: int,
        moment: Moment,
    ) -> SlownessReport | None:
        """How the job stands; None until steps of this attempt were told by all ranks."""
        if self._attempt is None or self._attempt.number != attempt:
            self._start(attempt)
        current = self._attempt
        assert current is not None
        new = list(lines)
        current.recompilations.take(new)
        if self._efficiency is not None:
            self._efficiency.hear(new)
        scene = JudgeContext(places, reports, findings, moment)
        newest = None
        for frame in current.frames.take(new, places.keys()):
            newest = self._judge(current, frame, scene)
        if newest is not None:  # what is told of the others nobody reads
            self._standing = self._tell(current, newest, scene)
        return self._standing

    def _start(self, attempt: int) -> None:
        """Nothing of another attempt's pace says anything of this one's."""
        self._toll.close_all()
        self._attempt, self._standing = _Attempt(attempt), None
        if self._efficiency is not None:
            self._efficiency.begin()

    def _judge(self, current: _Attempt, frame: StepFrame, scene: JudgeContext) -> _Judged:
        excesses = current.detector.follow(frame, scene.places, scene.moment.now_s)
        frame = frame.without(current.detector.senseless)
        compared = alike(frame)
        late = [excess.rank for excess in excesses]
        exchanges = current.exchanges.follow(frame, scene.places, late)
        named = current.hearing.follow(compared, scene.places, excesses, scene.findings)
        causes = {rank: one.cause for rank, one in named.items()}
        model = current.what_ifs.read(compared, scene.places)
        found = current.bursts.follow(compared, scene.places, model, current.what_ifs.work, late)
        # Of who pauses and is slow between as well, what costs more.
        beyond_us = {excess.rank: excess.own_us - excess.usual_us for excess in excesses}
        recurring = [
            one
            for one in found
            if one.kind is SpellKind.WORK or one.costs_us > beyond_us.get(one.rank, 0.0)
        ]
        # Whose slow steps are told one by one is not told as slow in all of them.
        apart = {one.rank for one in recurring}
        steady = [excess for excess in excesses if excess.rank not in apart]
        troubles = slow_ranks(steady, named, scene.places, model)
        troubles += recurring_ranks(recurring, scene.places, scene.findings, frame.step)
        troubles += _others(current, frame, scene, model, exchanges, late)
        what_ifs = current.what_ifs.follow(compared, model, steady, causes, exchanges, troubles)
        self._toll.watch(current.watch(frame, model))
        charge(troubles, frame, model, scene.places, self._toll, current.arrears)
        self._watch_efficiency(current, frame, scene)
        return _Judged(frame, model, troubles, what_ifs, current.pace.follow(frame))

    def _tell(self, current: _Attempt, judged: _Judged, scene: JudgeContext) -> SlownessReport:
        frame = judged.frame
        slow = [self._slowness(current, one, frame, scene.moment) for one in judged.troubles]
        unjudged = (
            *current.detector.unjudged,
            *current.exchanges.unjudged,
            *current.stages.unjudged,
        )
        return SlownessReport(
            attempt=current.number,
            step=frame.step,
            judged_ranks=len(frame.lines),
            at_unix_s=scene.moment.now_unix_s,
            slow=sorted(slow, key=lambda one: (-one.gain, one.key)),
            what_ifs=list(judged.what_ifs),
            unjudged=list(unjudged[:MOST_UNJUDGED]),
            unjudged_ranks=len(current.detector.left_out),
            watched_s=round(self._toll.watched_s, 6),
            lost_s=self._toll.by_cause,
            lost_by_rank=self._toll.by_rank,
            charged_s=self._toll.charged,
            efficiency=self._tell_efficiency(current, scene),
            change=judged.change,
        )

    def _watch_efficiency(self, current: _Attempt, frame: StepFrame, scene: JudgeContext) -> None:
        """By this frame, or of thousands of ranks by one of the newest few."""
        current.until_efficiency -= 1
        if self._efficiency is not None and current.until_efficiency <= 0:
            current.until_efficiency = 1 + len(frame.lines) // EACH_FRAME_RANKS
            ranks = max(len(scene.places), len(scene.reports))
            self._efficiency.follow(frame, scene.places, ranks)
            current.efficiency = None

    def _tell_efficiency(self, current: _Attempt, scene: JudgeContext) -> Efficiency | None:
        if self._efficiency is not None and current.efficiency is None:
            current.efficiency = self._efficiency.tell(scene.reports)
        return current.efficiency

    def _slowness(
        self,
        current: _Attempt,
        trouble: SlownessTrouble,
        frame: StepFrame,
        moment: Moment,
    ) -> Slowness:
        since_step = self._toll.since_step(trouble.accounts)
        steps = max(0, frame.step - since_step + 1)
        return Slowness(
            ranks=list(trouble.ranks),
            node=trouble.node,
            role=trouble.role,
            cause=trouble.named.cause,
            part=trouble.named.part,
            slowdown=round(trouble.slowdown, 4),
            confidence=round(trouble.confidence, 3),
            since_step=since_step,
            since_unix_s=moment.now_unix_s - steps * current.watched_s / current.watched_steps,
            is_persistent=trouble.is_persistent,
            gain=round(current.what_ifs.gain(trouble), 4),
            lost_s=round(self._toll.lost_s(trouble.accounts), 3),
            evidence=list(trouble.named.evidence),
            advice=trouble.named.advice,
            group=trouble.group,
            cause_confidence=trouble.named.confidence,
            is_guess=not trouble.named.is_measured,
            is_asleep=trouble.named.is_asleep,
            is_host_only=trouble.named.is_host_only,
        )


def _others(
    current: _Attempt,
    frame: StepFrame,
    scene: JudgeContext,
    model: StepModel,
    exchanges: Sequence[SlowExchange],
    slow: Sequence[int],
) -> list[SlownessTrouble]:
    """What is no single rank's: links, stages, the compiler."""
    step_us = model.total_us
    quick = current.exchanges.quick(exchanges) if exchanges else []
    suspects = suspect(exchanges, quick, scene.findings)
    heavy = current.stages.follow(frame, scene.places, slow)
    recompiling = current.recompilations.judge(frame.step, step_us)
    return [
        *slow_links(suspects, frame, scene.places, step_us / 1e6),
        *heavy_stages(heavy, frame, scene.places, scene.findings, model),
        *compilers(recompiling, scene.places, frame.step, step_us),
    ]
