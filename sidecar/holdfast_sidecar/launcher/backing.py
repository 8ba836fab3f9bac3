"""When warm interpreters are started for the next attempt, and what they import: once per attempt.

Not before every rank has stepped: until then they would compete with the ranks' own start. And not
at the ranks' expense: importing torch takes seconds of a core, which a short job on busy cores
would feel as seconds more. They start once cores have nothing else to do, else once the ranks have
stepped for so long that it is a small share of that time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.page import Flag
from holdfast_sidecar.components.host.cpu import parse_idle_s, read_cpu_limit
from holdfast_sidecar.launcher.rank_pages import has_flag, has_stepped, read_words
from holdfast_sidecar.launcher.standby import Standby
from holdfast_sidecar.linux.files import read_if_any

LOOK_EVERY_S = 0.5
"""At the ranks' pages until all have stepped, and then whether it is time."""

IDLE_OVER_S = 0.5
"""So long cores are watched for what they have left: many steps, or a pause in long ones."""

WATCHED_SHARE = 0.1
"""Of the time since the ranks step, where that is more: cores that were never idle are read less
and less often, as each reading takes a core from a rank for a millisecond."""

IDLE_CORES_EACH = 0.75
"""So that an interpreter hardly ever takes a core that a rank wants: ranks that wait for half of
each step leave half of each core idle, but by turns."""

IMPORT_CPU_S = 3.0
"""Of one core, for one interpreter with torch and what DDP and AdamW import of it."""

LARGEST_SHARE = 0.02
"""Of the time since the ranks step, on as many cores as interpreters start: where work is shared
out over more of them, all wait for the one that is slowed."""


@dataclass(frozen=True)
class Cores:
    """What this node may use."""

    numbers: frozenset[int]
    quota: float
    """At most so many at once."""
    idle_s: float | None
    """CPU seconds since boot in which they had nothing to run; None: it is not told, or there is a
    quota, and what is idle beyond it is for others."""

    @property
    def count(self) -> float:
        """Cores' worth."""
        return min(self.quota, len(self.numbers))


def read_cores(proc: Path = Path("/proc")) -> Cores:
    """Of this process, and so of the ranks."""
    numbers = frozenset(os.sched_getaffinity(0))
    quota = read_cpu_limit(proc, "self")
    if quota is not None and quota < len(numbers):
        return Cores(numbers, quota, None)
    return Cores(numbers, math.inf, parse_idle_s(read_if_any(f"{proc}/stat"), numbers))


class Backing:
    """Watches over one attempt's first steps."""

    def __init__(
        self,
        standby: Standby,
        pages: Sequence[Path],
        tell: Callable[[tuple[str, ...]], None] = lambda modules: None,
        cores: Callable[[], Cores] = read_cores,
    ) -> None:
        self._standby = standby
        self._pages = pages
        self._tell = tell
        self._cores = cores
        self._looked_at = float("-inf")
        self._modules: tuple[str, ...] = ()
        self._stepping_since = 0.0
        self._seen = 0.0, Cores(frozenset(), 0.0, None)
        self._is_settled = False

    def look(self, now: float) -> None:
        """Start the interpreters if it is time. `now` is monotonic seconds."""
        if self._is_settled or now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        if not self._modules:
            self._await_steps(now)
        elif self._is_time(now):
            self._is_settled = True
            self._standby.warm_up(self._modules)

    def _await_steps(self, now: float) -> None:
        words = [read_words(page) for page in self._pages]
        stepped = [found for found in words if found is not None and has_stepped(found)]
        if len(stepped) < len(self._pages):
            return
        self._modules, self._stepping_since = modules_to_warm(stepped), now
        self._seen = now, self._cores()
        self._is_settled = not self._modules
        self._tell(self._modules)

    def _is_time(self, now: float) -> bool:
        since, cores = self._seen
        stepping_s, idle_cores = now - self._stepping_since, 0.0
        if now - since >= max(IDLE_OVER_S, WATCHED_SHARE * stepping_s):
            before, cores = cores, self._cores()
            self._seen = now, cores
            idle_cores = _idle_s(before, cores) / (now - since)
        return is_affordable(len(self._pages), idle_cores, cores.count, stepping_s)


def _idle_s(before: Cores, after: Cores) -> float:
    """CPU seconds between these looks in which there was nothing to run; 0 where that is not known,
    as of cores that were not this node's before."""
    if before.numbers != after.numbers or before.idle_s is None or after.idle_s is None:
        return 0.0
    return after.idle_s - before.idle_s


def is_affordable(interpreters: int, idle_cores: float, cores: float, stepping_s: float) -> bool:
    """Whether so many can be started at nobody's expense, or at little."""
    if idle_cores >= IDLE_CORES_EACH * interpreters:
        return True
    used = min(cores, interpreters)
    return IMPORT_CPU_S * interpreters <= LARGEST_SHARE * used * stepping_s


def modules_to_warm(words: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """What these ranks had imported and is slow to import; empty when they must start cold."""
    if any(has_flag(found, Flag.NEEDS_COLD_START) for found in words):
        return ()
    # DDP and AdamW import it on first use: another second of CPU time beside torch's own.
    uses_dynamo = any(has_flag(found, Flag.DYNAMO_IMPORTED) for found in words)
    return ("torch", "torch._dynamo") if uses_dynamo else ("torch",)
