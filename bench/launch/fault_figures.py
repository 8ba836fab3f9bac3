"""How the contestants came through each fault, and what Holdfast is to reach. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import NOT_RUN, Figure, at_most, exactly, middle, ratio
from bench.launch.names import (
    ADAMW,
    CONTESTANTS,
    FAULTS,
    HOLDFAST,
    NVRX,
    SGD,
    TORCHRUN,
    TORCHRUN_OWN_STORE,
)
from bench.launch.selection import BACK, fastest, of, values

KILLS = 20
"""How many SIGKILLs a full run is to survive; a quick run has fewer."""

STEPS_TO_DECLARE = 3
SECONDS_TO_DECLARE = 1.0
"""A stopped process is to be declared within this many steps and seconds."""

BACK_FACTOR = 1.2
"""How much longer than after a SIGKILL recovery may take once the stop is declared."""

MEASURES = (
    ("detected_s", "detected"),
    ("first_new_process_s", "first new process"),
    (BACK, "every rank stepping"),
)


def kill_figures(samples: Sequence[Sample]) -> list[Figure]:
    """SIGKILL of a rank: all recovered, and faster than the faster peer."""
    row = "sigkill"
    own = of(samples, row, HOLDFAST)
    wanted = len(own) or KILLS
    recovered = sum(sample["recovered"] for sample in own) if own else None
    title = f"{FAULTS[row]}: Holdfast recovered"
    found = [exactly(title, f"of {wanted}", recovered, wanted)]
    for job, limit in ((ADAMW, 0.75), (SGD, 0.5)):
        mine = values(samples, row, HOLDFAST, BACK, job)
        peers = fastest(samples, row, (TORCHRUN_OWN_STORE, NVRX), job)
        name = f"{FAULTS[row]}, {job}: Holdfast / faster of torchrun (own store) and NVRx"
        found += [at_most(name, "ratio", ratio(mine, peers), limit), *_times(samples, row, job)]
    return found


def stop_figures(samples: Sequence[Sample]) -> list[Figure]:
    """SIGSTOP of a rank: declared in time, and back not much later than from a SIGKILL."""
    own = of(samples, "sigstop", HOLDFAST)
    killed = values(samples, "sigkill", HOLDFAST, BACK, ADAMW)
    return [_declared(own), _back(own, killed), *_times(samples, "sigstop", ADAMW)]


def node_figures(samples: Sequence[Sample], row: str, limit: float) -> list[Figure]:
    """A lost node: back in a fraction of the faster torchrun's time."""
    mine = values(samples, row, HOLDFAST, BACK)
    peers = fastest(samples, row, (TORCHRUN, TORCHRUN_OWN_STORE), ADAMW)
    name = f"{FAULTS[row]}: Holdfast / faster of torchrun's two"
    return [at_most(name, "ratio", ratio(mine, peers), limit), *_times(samples, row, ADAMW)]


def _declared(own: Sequence[Sample]) -> Figure:
    """Every stop must be declared in time; one without an incident was not."""
    name = f"{FAULTS['sigstop']}: Holdfast, slowest declared after"
    allowed_s = _allowed_s(own)
    if allowed_s is None:
        goal = f"<= {STEPS_TO_DECLARE} steps + {SECONDS_TO_DECLARE:g} s"
        return Figure(name, None, "s", goal, met=False if own else NOT_RUN)
    detected = [sample["detected_s"] for sample in own if sample.get("detected_s") is not None]
    if len(detected) < len(own):
        goal = f"<= {allowed_s:g}"
        return Figure(name, None, "s", goal, met=False, spread=tuple(detected))
    return at_most(name, "s", max(detected), allowed_s, detected)


def _back(own: Sequence[Sample], killed: Sequence[float]) -> Figure:
    name = f"{FAULTS['sigstop']}: Holdfast, every rank stepping again after"
    back = [sample[BACK] for sample in own if sample.get(BACK) is not None]
    allowed_s = _allowed_s(own)
    if allowed_s is None or not back or not killed:
        goal = f"<= declared in time + {BACK_FACTOR:g} x SIGKILL"
        return Figure(name, None, "s", goal, met=False if own and killed else NOT_RUN)
    limit_s = round(allowed_s + BACK_FACTOR * statistics.median(killed), 3)
    return at_most(name, "s", statistics.median(back), limit_s, back)


def _allowed_s(own: Sequence[Sample]) -> float | None:
    """Three of the run's own steps and a second; what the phase lasts normally is not added."""
    steps: list[float] = [sample["step_s"] for sample in own if sample.get("step_s") is not None]
    if not steps:
        return None
    median_s = float(statistics.median(steps))
    return round(STEPS_TO_DECLARE * median_s + SECONDS_TO_DECLARE, 3)


def _times(samples: Sequence[Sample], row: str, job: str) -> list[Figure]:
    found = []
    for contestant in CONTESTANTS:
        own = of(samples, row, contestant, job)
        if not own:
            continue
        title = f"{FAULTS[row]}, {job}, {contestant}"
        recovered = sum(sample["recovered"] for sample in own)
        if contestant == HOLDFAST:
            found.append(exactly(f"{title}: recovered", f"of {len(own)}", recovered, len(own)))
        else:
            found.append(Figure(f"{title}: recovered", recovered, f"of {len(own)}"))
        for measure, words in MEASURES:
            measured = values(samples, row, contestant, measure, job)
            if measured:
                found.append(middle(f"{title}: {words}", "s", measured))
    return found
