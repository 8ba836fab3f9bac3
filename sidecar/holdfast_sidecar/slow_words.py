"""Slowness in words: who, by how much, why, what it costs. Pure."""

from __future__ import annotations

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.records.performance import Performance
from holdfast_sidecar.records.slowness import Cause, Change, Slowness, WhatIf
from holdfast_sidecar.span import span
from holdfast_sidecar.stragglers.cost import money

CAUSES = {
    Cause.GPU_CLOCK: "heat or a brake holds its GPU's clock down",
    Cause.GPU_POWER: "a power cap holds its GPU's clock down",
    Cause.GPU_LINK: "its GPU's PCIe or NVLink is narrower or slower than it could be",
    Cause.GPU_SHARED: "another process computes on the same GPU",
    Cause.COMPUTE: "what it computes takes longer, and nothing that is watched explains it",
    Cause.CPU_QUOTA: "its control group's CPU quota is used up",
    Cause.CPU_CONTENTION: "others want the same CPU cores",
    Cause.MEMORY_PRESSURE: "host memory is short: pages are read from storage again and again",
    Cause.COLLECTOR: "Python's garbage collector",
    Cause.DATA_LOADING: "its batches come late",
    Cause.STORAGE: "the storage that it reads from is slow",
    Cause.LINK: "a network link or card is slow",
    Cause.UNEVEN_WORK: "it is given more to do than the others",
    Cause.PIPELINE: "its pipeline stage has more to do than the others",
    Cause.RECOMPILATION: "torch.compile starts over again and again",
    Cause.EVALUATION: "it evaluates while the others wait",
    Cause.SAVING: "it saves while the others wait",
    Cause.UNKNOWN: "nothing that is watched explains it",
}

NOT_WITHOUT = {
    Cause.UNEVEN_WORK: "with even work",
    Cause.PIPELINE: "with even stages",
}
"""What would make the job faster where nobody is to be left out."""

LEAST_GAIN = 0.005
"""Below half a percent the job would be as fast without."""


def who(one: Slowness) -> str:
    """`rank 5 on b`, `ranks 4, 5 on b`, `node b`, as far as it is known."""
    listed = ", ".join(map(str, one.ranks[:8])) + ", …" * (len(one.ranks) > 8)
    ranks = f"rank{'s' * (len(one.ranks) > 1)} {listed}" if one.ranks else ""
    if not one.node:
        return ranks or "somebody"
    return f"{ranks} on {one.node}" if ranks else f"node {one.node}"


def verb(one: Slowness) -> str:
    """`ranks 1, 3 on b` are, `rank 5 on b` is."""
    return "are" if len(one.ranks) > 1 else "is"


def counted(ranks: int) -> str:
    """`1 rank`, `4,096 ranks`."""
    return f"{ranks:,} rank{'s' * (ranks != 1)}"


def why(one: Slowness) -> str:
    """Its cause in words."""
    if one.is_asleep and one.cause in (Cause.COMPUTE, Cause.UNKNOWN):
        return "it sleeps or waits for something outside, and nothing that is watched explains it"
    return CAUSES.get(one.cause, one.cause.value)


def sureness(one: Slowness) -> str:
    """`95% of who it is, 57% of why, a guess`: a rank may be slow beyond doubt, and why unclear."""
    who_it_is = f"{one.confidence:.0%} of who it is"
    if not one.cause_confidence:
        return who_it_is
    return f"{who_it_is}, {one.cause_confidence:.0%} of why" + ", a guess" * one.is_guess


def brief(one: Slowness) -> str:
    """`rank 5 on b, +31 % since step 1200: cpu_quota; the job would be 18 % faster without it`."""
    return f"{who(one)}, +{percent(one.slowdown)} since step {one.since_step}: {_why(one)}"


def _why(one: Slowness) -> str:
    gain = gained(one)
    return f"{one.cause.value}; {gain}" if gain else one.cause.value


def gained(one: Slowness) -> str:
    """What the job would gain; empty: nothing to speak of."""
    if one.gain < LEAST_GAIN:
        return ""
    without = NOT_WITHOUT.get(one.cause, "without it")
    return f"the job would be {percent(one.gain)} faster {without}"


def changed(one: Change) -> str:
    """That all of them take longer than they did."""
    times = f"{one.ratio:.1f}" if one.ratio < 10 else f"{one.ratio:.0f}"
    return (
        f"every rank takes {times} times as long as before step {one.since_step:,}"
        f" ({span(one.now_s)} of own work a step, {span(one.before_s)} before; most of that in"
        f" {one.part}): what the job does has changed, or what all of them share"
    )


def if_only(one: WhatIf) -> str:
    """`18 % faster without rank 5`, `6 % faster with even sequence lengths`."""
    return f"{percent(one.gain)} faster {_without(one)}"


def _without(one: WhatIf) -> str:
    if one.kind == "work":
        return "with even work (sequence lengths)"
    if one.kind == "stages":
        return "with even stages"
    if one.kind == "stage":
        return f"with {one.what} as fast as the other stages"
    if one.kind == "cause":
        return f"were nobody slow by {one.what}"
    return f"without {one.what}"


def percent(share: float) -> str:
    """A part of one as people say it: `31 %`; below ten with a digit more."""
    hundredth = share * 100
    return f"{hundredth:.0f} %" if abs(hundredth) >= 9.95 else f"{hundredth:.1f} %"


def exact_percent(share: float) -> str:
    """The same of what is compared from run to run, a digit more: `91.5 %`."""
    return f"{share:.1%}".replace("%", " %")


def cost(lost_s: float, performance: Performance, price: CostSettings) -> str:
    """`5 min 12 s of the job, 0.69 GPU hours, 1.73 USD`; money only where a price is set."""
    ranks = performance.world_size
    paid = money(lost_s, ranks, price)
    told = "" if paid is None else f", {paid:,.2f} {price.currency}"
    hours = f"{gpu_hours(lost_s, ranks):,.2f} {hours_of(performance, price)}"
    return f"{span(lost_s)} of the job, {hours}{told}"


def hours_of(performance: Performance, price: CostSettings) -> str:
    """An hour of a rank is a GPU's only where one was seen, or somebody pays for it."""
    has_devices = any(rank.memory_total for rank in performance.ranks)
    return "GPU hours" if has_devices or price.per_gpu_hour > 0 else "rank hours"


def gpu_hours(lost_s: float, ranks: int) -> float:
    """While the job stands, every rank does: each counts as one GPU."""
    return lost_s * ranks / 3600
