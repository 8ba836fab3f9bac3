"""From samples to figures: which numbers are to be reached, and whether they were. Pure.

Every comparison is a ratio of medians within one run: seconds on another machine say little.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_most, exactly, middle, ratio

ADAMW = "adamw"
SGD = "sgd"

HOLDFAST = "Holdfast"
TORCHRUN = "torchrun"
TORCHRUN_OWN_STORE = "torchrun, own store"
NVRX = "NVRx"
CONTESTANTS = (TORCHRUN, TORCHRUN_OWN_STORE, NVRX, HOLDFAST)

FAULTS = {
    "sigkill": "SIGKILL of a rank",
    "sigstop": "SIGSTOP of a rank",
    "node-replaced": "lost node, replaced",
    "node-shrunk": "lost node, shrinking",
}

KILLS = 20
"""How many SIGKILLs a full run survives, or does not; a quick run has fewer."""

STEPS_TO_DECLARE = 3
SECONDS_TO_DECLARE = 1.0
"""A stopped process is to be declared within this many steps and seconds."""


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """All figures, in the order of docs/benchmarks.md."""
    return [
        *_kill(samples),
        *_stop(samples),
        *_node(samples, "node-replaced", 0.3),
        *_node(samples, "node-shrunk", 0.15),
        *_rendezvous(samples),
        *_hooks(samples),
        *_sidecar(samples),
        *_per_step(samples),
    ]


def _kill(samples: Sequence[Sample]) -> list[Figure]:
    row = "sigkill"
    own = _of(samples, row, HOLDFAST)
    recovered = sum(sample["recovered"] for sample in own) if own else None
    wanted = len(own) or KILLS
    found = [exactly("SIGKILL of a rank: Holdfast recovered", f"of {wanted}", recovered, wanted)]
    for job, limit in ((ADAMW, 0.75), (SGD, 0.5)):
        mine = _values(samples, row, HOLDFAST, "every_rank_stepping_s", job)
        name = f"SIGKILL of a rank, {job}: Holdfast / faster of torchrun (own store) and NVRx"
        peers = (TORCHRUN_OWN_STORE, NVRX)
        found.append(at_most(name, "ratio", ratio(mine, _fastest(samples, row, peers, job)), limit))
        found += _times(samples, row, job)
    return found


def _stop(samples: Sequence[Sample]) -> list[Figure]:
    row = "sigstop"
    own = _of(samples, row, HOLDFAST)
    detected = _values(samples, row, HOLDFAST, "detected_s")
    steps = [sample["step_s"] for sample in own if sample.get("step_s")]
    allowed = STEPS_TO_DECLARE * statistics.median(steps) + SECONDS_TO_DECLARE if steps else 0.0
    killed = _values(samples, "sigkill", HOLDFAST, "every_rank_stepping_s", ADAMW)
    back = _values(samples, row, HOLDFAST, "every_rank_stepping_s")
    limit = allowed + 1.2 * statistics.median(killed) if killed else 0.0
    return [
        _declared(own, detected, round(allowed, 3)),
        at_most(
            "SIGSTOP of a rank: Holdfast, every rank stepping again after",
            "s",
            statistics.median(back) if back and killed else None,
            round(limit, 3),
            back,
        ),
        *_times(samples, row, ADAMW),
    ]


def _declared(own: Sequence[Sample], detected: Sequence[float], allowed_s: float) -> Figure:
    """All must be declared in time; one that has no incident was not."""
    name = "SIGSTOP of a rank: Holdfast, slowest declared after"
    if len(detected) < len(own):
        return Figure(name, None, "s", f"<= {allowed_s:g}", met=False, spread=tuple(detected))
    return at_most(name, "s", max(detected, default=None), allowed_s, detected)


def _node(samples: Sequence[Sample], row: str, limit: float) -> list[Figure]:
    mine = _values(samples, row, HOLDFAST, "every_rank_stepping_s")
    peers = (TORCHRUN, TORCHRUN_OWN_STORE)
    name = f"{FAULTS[row]}: Holdfast / faster of torchrun's two"
    return [
        at_most(name, "ratio", ratio(mine, _fastest(samples, row, peers, ADAMW)), limit),
        *_times(samples, row, ADAMW),
    ]


def _times(samples: Sequence[Sample], row: str, job: str) -> list[Figure]:
    found = []
    for contestant in CONTESTANTS:
        own = _of(samples, row, contestant, job)
        if not own:
            continue
        title = f"{FAULTS[row]}, {job}, {contestant}"
        recovered = sum(sample["recovered"] for sample in own)
        if contestant == HOLDFAST:
            found.append(exactly(f"{title}: recovered", f"of {len(own)}", recovered, len(own)))
        else:
            found.append(Figure(f"{title}: recovered", recovered, f"of {len(own)}"))
        for measure, words in (
            ("detected_s", "detected"),
            ("first_new_process_s", "first new process"),
            ("every_rank_stepping_s", "every rank stepping"),
        ):
            values = _values(samples, row, contestant, measure, job)
            if values:
                found.append(middle(f"{title}: {words}", "s", values))
    return found


def _rendezvous(samples: Sequence[Sample]) -> list[Figure]:
    found = []
    for nodes, limit_ms in ((2, 50), (64, 500)):
        row = f"rendezvous-{nodes}"
        own = _values(samples, row, HOLDFAST, "milliseconds")
        value = statistics.median(own) if own else None
        name = f"rendezvous of {nodes} nodes: Holdfast"
        found.append(at_most(name, "ms", value, limit_ms, own))
        found.append(
            middle(
                f"rendezvous of {nodes} nodes: torch c10d",
                "ms",
                _values(samples, row, TORCHRUN, "milliseconds"),
            )
        )
    return found


def _hooks(samples: Sequence[Sample]) -> list[Figure]:
    cost = _values(samples, "hooks-cost", HOLDFAST, "p99_us")
    calls = _values(samples, "hooks-cost", HOLDFAST, "system_calls_per_step")
    paired = _of(samples, "hooks-paired", HOLDFAST)
    upper = paired[-1]["upper_percent"] if paired else None
    ends = ("lower_percent", "percent", "upper_percent")
    interval = tuple(paired[-1][end] for end in ends) if paired else ()
    return [
        at_most(
            "hooks: own cost per step in a tight loop, p99 of 100-step means",
            "us",
            max(cost) if cost else None,
            10,
            cost,
        ),
        exactly("hooks: system calls per step", "calls", max(calls) if calls else None, 0),
        at_most(
            "hooks: on/off of a real step, upper bound of the 95 % interval",
            "%",
            upper,
            1,
            interval,
        ),
    ]


def _sidecar(samples: Sequence[Sample]) -> list[Figure]:
    share = _values(samples, "sidecar", HOLDFAST, "core_percent")
    memory = _values(samples, "sidecar", HOLDFAST, "pss_mib")
    torch = _values(samples, "sidecar", HOLDFAST, "torch_mapped")
    ranks = "sidecar with 8 ranks"
    return [
        at_most(f"{ranks}: share of a core", "%", max(share, default=None), 1, share),
        at_most(f"{ranks}: PSS, children included", "MiB", max(memory, default=None), 60, memory),
        exactly(f"{ranks}: processes with torch in them", "", max(torch, default=None), 0),
    ]


def _per_step(samples: Sequence[Sample]) -> list[Figure]:
    row = "per-step"
    bare = {sample["round"]: sample["step_s"] for sample in _of(samples, row, "no launcher")}
    found = [middle("step without a launcher", "s", list(bare.values()))]
    for contestant in (TORCHRUN, NVRX, HOLDFAST):
        ratios = [
            sample["step_s"] / bare[sample["round"]]
            for sample in _of(samples, row, contestant)
            if sample["round"] in bare
        ]
        found.append(middle(f"step under {contestant} / without a launcher", "ratio", ratios))
    return found


def _fastest(samples: Sequence[Sample], row: str, peers: Sequence[str], job: str) -> list[float]:
    """The times of the peer with the smallest median, as long as all of them were measured."""
    times = [_values(samples, row, peer, "every_rank_stepping_s", job) for peer in peers]
    measured = [values for values in times if values]
    if not all(_of(samples, row, peer, job) for peer in peers) or not measured:
        return []
    return min(measured, key=statistics.median)


def _of(
    samples: Sequence[Sample], row: str, contestant: str, job: str | None = None
) -> list[Sample]:
    return [
        sample
        for sample in samples
        if sample["row"] == row
        and sample["contestant"] == contestant
        and job in (None, sample.get("job"))
    ]


def _values(
    samples: Sequence[Sample], row: str, contestant: str, measure: str, job: str | None = None
) -> list[float]:
    found = (sample.get(measure) for sample in _of(samples, row, contestant, job))
    return [value for value in found if value is not None]
