"""What Holdfast costs while nothing is wrong: rendezvous, hooks, sidecar, launcher. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_most, exactly, middle
from bench.launch.names import BARE, HOLDFAST, HOOKS_PAIRED, NVRX, TORCHRUN
from bench.launch.selection import of, values


def rendezvous_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Two sizes, torch's own beside it."""
    found = []
    for nodes, limit_ms in ((2, 50), (64, 500)):
        row, title = f"rendezvous-{nodes}", f"rendezvous of {nodes} nodes"
        own = values(samples, row, HOLDFAST, "milliseconds")
        value = statistics.median(own) if own else None
        peer = values(samples, row, TORCHRUN, "milliseconds")
        found.append(at_most(f"{title}: Holdfast", "ms", value, limit_ms, own))
        found.append(middle(f"{title}: torch c10d", "ms", peer))
    return found


def hooks_figures(samples: Sequence[Sample]) -> list[Figure]:
    """The hooks' own cost, their system calls, and what a real step notices of them."""
    cost = values(samples, "hooks-cost", HOLDFAST, "p99_us")
    calls = values(samples, "hooks-cost", HOLDFAST, "system_calls_per_step")
    tight = "hooks: own cost per step in a tight loop, p99 of 100-step means"
    return [
        at_most(tight, "us", max(cost, default=None), 10, cost),
        exactly("hooks: system calls per step", "calls", max(calls, default=None), 0),
        paired_figure(samples),
    ]


def paired_figure(samples: Sequence[Sample]) -> Figure:
    """What a real step notices of the hooks at the most."""
    ends = ("lower_percent", "percent", "upper_percent")
    paired = of(samples, HOOKS_PAIRED, HOLDFAST)
    interval = [paired[-1][end] for end in ends] if paired else []
    real = "hooks: on/off of a real step, upper bound of the 95 % interval"
    return at_most(real, "%", max(interval, default=None), 1, interval)


def sidecar_figures(samples: Sequence[Sample]) -> list[Figure]:
    """One that watches 8 ranks."""
    share = values(samples, "sidecar", HOLDFAST, "core_percent")
    memory = values(samples, "sidecar", HOLDFAST, "pss_mib")
    torch = values(samples, "sidecar", HOLDFAST, "torch_mapped")
    title = "sidecar with 8 ranks"
    return [
        at_most(f"{title}: share of a core", "%", max(share, default=None), 1, share),
        at_most(f"{title}: PSS, children included", "MiB", max(memory, default=None), 60, memory),
        exactly(f"{title}: with torch in them", "processes", max(torch, default=None), 0),
    ]


def per_step_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Launches in turn, each against the bare one of its round."""
    row = "per-step"
    bare = {sample["round"]: sample["step_s"] for sample in of(samples, row, BARE)}
    found = [middle("step without a launcher", "s", list(bare.values()))]
    for contestant in (TORCHRUN, NVRX, HOLDFAST):
        ratios = [
            sample["step_s"] / bare[sample["round"]]
            for sample in of(samples, row, contestant)
            if sample["round"] in bare
        ]
        found.append(middle(f"step under {contestant} / without a launcher", "ratio", ratios))
    return found
