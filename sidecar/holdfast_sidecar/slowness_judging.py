"""Has all ranks' steps judged: gathers them, asks the judge when there is enough to judge, and sees
to it that a judge that fails takes nothing else with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import SlowStanding, StepLine
from holdfast_sidecar.stragglers.gathering import Gathering
from holdfast_sidecar.stragglers.place import Place

logger = logging.getLogger(__name__)

EVERY_S = 1.0
"""How often at most, unless all ranks have told of more steps: lines of some are compared with
nothing until the others have told theirs, or were waited for long enough."""


class Judge(Protocol):
    """Who is slow: `stragglers.judge.Judge`."""

    def follow(
        self,
        lines: Iterable[StepLine],
        places: Mapping[int, Place],
        reports: Mapping[int, RankReport],
        findings: Sequence[Finding],
        attempt: int,
        moment: Moment,
    ) -> SlowStanding | None:
        """How the job stands after these lines; None: nothing can be said of it yet."""

    def resume(self, standing: SlowStanding) -> None:
        """Go on from what was lost until then."""


@dataclass
class Judging:
    """One term of judging: as long as it is this sidecar's."""

    make_judge: Callable[[], Judge]
    standing: SlowStanding | None = None
    """As it was judged last; at first, where others left it."""
    gathering: Gathering = field(default_factory=Gathering)
    attempt: int = -1
    runner: ProbeRunner[SlowStanding | None] = field(init=False)
    name: str = "slowness"
    _judge: Judge = field(init=False)
    _moment: Moment = field(default_factory=lambda: Moment(0.0, 0.0, ""))
    _due_s: float = -math.inf

    def __post_init__(self) -> None:
        self.runner = ProbeRunner(self, every_s=0.0)
        self._begin()

    def turn_to(self, attempt: int) -> bool:
        """Whether this attempt is another one: nothing was gathered of it yet."""
        if attempt == self.attempt:
            return False
        self.attempt, self.gathering = attempt, Gathering()
        return True

    def follow(self, moment: Moment) -> SlowStanding | None:
        """How the job stands, judged anew if it is time."""
        gathered = self.gathering
        if gathered.is_new and (moment.now_s >= self._due_s or gathered.is_whole):
            self._due_s, self._moment = moment.now_s + EVERY_S, moment
            self.standing = self.runner.read(moment.now_s) or self.standing
            if not self.runner.health.is_up:
                self._begin()
        return self.standing

    def read(self, now_s: float) -> SlowStanding | None:
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
