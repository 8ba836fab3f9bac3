"""A length of time in words, for all that people read. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.records.reports import Performance
from holdfast_sidecar.records.steps import PaceChange, SlowCause, Slowness, WhatIf


def span(seconds: float) -> str:
    """A length of time as people say it: two units at most."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, below_s, below in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


# Ranks, and how processes ended, in words, for evidence and stories; names in order. Pure.

MOST_PARTS = 6
"""Beyond this a list is cut: of a thousand ranks nobody reads the numbers."""


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`; `no rank` of none."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs = [[numbers[0], numbers[0]]]
    for number in numbers[1:]:
        if number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(parts) > MOST_PARTS:
        parts = [*parts[:MOST_PARTS], f"… ({len(numbers)} in all)"]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(parts)}"


def who_has(ranks: Iterable[int]) -> str:
    """`rank 3 has`, `ranks 0-2 have`."""
    numbers = set(ranks)
    return f"{name_ranks(numbers)} {'has' if len(numbers) == 1 else 'have'}"


def who_wait(ranks: Iterable[int]) -> str:
    """`rank 3 waits`, `ranks 0-2 wait`."""
    numbers = set(ranks)
    return f"{name_ranks(numbers)} wait{'s' * (len(numbers) == 1)}"


def name_signal(number: int) -> str:
    """`SIGKILL`; `signal 42` of one that has no name here, as most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(exit_code: int) -> str:
    """`exited with code 3`; `was ended by SIGKILL` of a negative one, as `subprocess` has it."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was ended by {name_signal(-exit_code)}"


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that puts host2 before host10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


# What lost time costs in money.


def money(lost_s: float, ranks: int, settings: CostSettings) -> float | None:
    """What so many seconds of the whole job cost, in `settings.currency`: its ranks wait together.
    None: nobody said what an hour of a GPU costs."""
    if settings.per_gpu_hour <= 0:
        return None
    return lost_s / 3600 * ranks * settings.per_gpu_hour


# Slowness in words: who, by how much, why, what it costs. Pure.

CAUSES = {
    SlowCause.GPU_CLOCK: "heat or a brake holds its GPU's clock down",
    SlowCause.GPU_POWER: "a power cap holds its GPU's clock down",
    SlowCause.GPU_LINK: "its GPU's PCIe or NVLink is narrower or slower than it could be",
    SlowCause.GPU_SHARED: "another process computes on the same GPU",
    SlowCause.COMPUTE: "what it computes takes longer, and nothing that is watched explains it",
    SlowCause.CPU_QUOTA: "its control group's CPU quota is used up",
    SlowCause.CPU_CONTENTION: "others want the same CPU cores",
    SlowCause.MEMORY_PRESSURE: "host memory is short: pages are read from storage again and again",
    SlowCause.COLLECTOR: "Python's garbage collector",
    SlowCause.DATA_LOADING: "its batches come late",
    SlowCause.STORAGE: "the storage that it reads from is slow",
    SlowCause.LINK: "a network link or card is slow",
    SlowCause.UNEVEN_WORK: "it is given more to do than the others",
    SlowCause.PIPELINE: "its pipeline stage has more to do than the others",
    SlowCause.RECOMPILATION: "torch.compile starts over again and again",
    SlowCause.EVALUATION: "it evaluates while the others wait",
    SlowCause.SAVING: "it saves while the others wait",
    SlowCause.UNKNOWN: "nothing that is watched explains it",
}

NOT_WITHOUT = {
    SlowCause.UNEVEN_WORK: "with even work",
    SlowCause.PIPELINE: "with even stages",
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
    if one.is_asleep and one.cause in (SlowCause.COMPUTE, SlowCause.UNKNOWN):
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


def changed(one: PaceChange) -> str:
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
