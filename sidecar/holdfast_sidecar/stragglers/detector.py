"""Who is slow: each rank against those of its role, step after step.

Never against all ranks, never on one observation, never on missing data: what can't be judged is
told as such.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import Excess, Frame
from holdfast_sidecar.stragglers.own_time import own_times
from holdfast_sidecar.stragglers.peers import spell_ranks
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.role_watch import RoleWatch

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

    def follow(self, frame: Frame, places: Mapping[int, Place], now_s: float) -> tuple[Excess, ...]:
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

    def _as_told(self, frame: Frame, now_s: float, roles: Iterable[str]) -> tuple[Excess, ...]:
        """Those of these roles who were slow when somebody last told of them, for a while."""
        return tuple(
            excess
            for role in sorted(roles)
            for excess in self._roles[role].follow((), frame, now_s, len(frame.lines))
        )

    def _by_role(self, frame: Frame, places: Mapping[int, Place]) -> Mapping[str, list[StepLine]]:
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
