"""For how long each rank's own CPU quota has kept it from running, so far.

Ranks may each be in a control group of their own; a group without a quota throttles nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.linux.cgroups import Place, find_places, parse_mounts, read_counts
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.probes.cgroup import find_quota, parse_throttled

EVERY_S = 1.0

FOUND_AGAIN_S = 5.0
"""How soon a quota is noticed that was set, or a group that a rank was put into, while it runs.
Looking for one reads several files of each group up to the root."""


@dataclass
class ThrottlingProbe:
    """Reads one file a second of each quota that ranks are under."""

    ranks: Callable[[], Mapping[int, int]]
    """Pids of this node's ranks."""
    proc: Path = Path("/proc")
    name: str = "throttling"
    _quotas: dict[int, Place] = field(default_factory=dict)
    """pid -> where the tightest one is set."""
    _due_s: float = -math.inf

    def read(self, now_s: float) -> dict[int, float]:
        """rank -> seconds; ranks without a quota are left out."""
        ranks = self.ranks()
        if now_s >= self._due_s or not self._quotas.keys() <= set(ranks.values()):
            self._quotas = self._find(ranks.values())
            self._due_s = now_s + FOUND_AGAIN_S
        told = {place: _read(place) for place in set(self._quotas.values())}
        throttled = {
            rank: told[self._quotas[pid]] for rank, pid in ranks.items() if pid in self._quotas
        }
        return {rank: seconds for rank, seconds in throttled.items() if seconds is not None}

    def _find(self, pids: Iterable[int]) -> dict[int, Place]:
        groups = {pid: read_if_any(f"{self.proc}/{pid}/cgroup") for pid in pids}
        mounts = parse_mounts(read_if_any(f"{self.proc}/self/mountinfo"))
        quotas = {
            group: find_quota(find_places("cpu", group, mounts)) for group in set(groups.values())
        }
        return {
            pid: found[1] for pid, group in groups.items() if (found := quotas[group]) is not None
        }


def _read(place: Place) -> float | None:
    return parse_throttled(read_counts(place.directory / "cpu.stat"), place.is_unified)
