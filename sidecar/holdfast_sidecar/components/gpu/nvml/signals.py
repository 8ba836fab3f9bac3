"""The table of signals: from which field or call each comes, in which unit, how often it is asked.

Field ids are NVML's (nvml.h, NVML_FI_DEV_...). Where a signal has several ways, the first is the
best, and the next is for drivers or GPUs that refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast_sidecar.components.gpu.nvml import calls
from holdfast_sidecar.components.gpu.nvml.calls import REFUSED_S, NvmlCall
from holdfast_sidecar.components.gpu.nvml.gpm import ALL_LINKS, Answer, FieldBatch
from holdfast_sidecar.components.gpu.readings import Signal

EACH_TIME = 0.0
"""What may stop a job within seconds, and what a step is told with."""
SELDOM_S = 10.0
"""Wear, links and settings: they move over minutes, and asking link by link costs the most."""
ONCE = math.inf
"""What can't change while the driver is loaded."""

MILLI = 1e-3
NANO = 1e-9
MEGA = 1e6
KIBI = 1024.0

MOST_COUNT = 2.0**62
"""No count of bytes or errors comes near; the all-ones of a broken register is above."""


@dataclass(frozen=True)
class Field:
    """One value of nvmlDeviceGetFieldValues; ours is the driver's times `factor`."""

    id: int
    factor: float = 1.0
    scope: int = 0


class LinkFold(Enum):
    """How the values of a GPU's NVLinks become one."""

    SUM = "sum"
    COUNT = "count of those that are not 0"
    LEAST = "least of those that are not 0"


@dataclass(frozen=True)
class LinkField:
    """A field that is asked link by link."""

    id: int
    factor: float = 1.0
    fold: LinkFold = LinkFold.SUM


Way = Field | LinkField | NvmlCall


@dataclass(frozen=True)
class SignalRow:
    """How one signal is read."""

    signal: Signal
    ways: tuple[Way, ...]
    every_s: float = EACH_TIME
    least: float = 0.0
    most: float = MOST_COUNT
    """What is not between the two is garbage and not told."""

    def believes(self, value: float) -> bool:
        """Whether the value can be true."""
        return self.least <= value <= self.most  # which no NaN is


RATIO = 1.0
HOTTEST = 200.0
COLDEST = -100.0
MOST_WATTS = 20_000.0
MOST_HERTZ = 20e9
MOST_BYTES = 2.0**48
MOST_LANES = 32
MOST_GENERATION = 16
MOST_LINKS = 64
MOST_STATE = 64

ROWS: tuple[SignalRow, ...] = (
    SignalRow(Signal.BUSY, (calls.UTILISATION,), most=RATIO),
    SignalRow(Signal.MEMORY_SIZE, (calls.MEMORY, calls.MEMORY_FIRST_VERSION), most=MOST_BYTES),
    SignalRow(Signal.MEMORY_USED, (calls.MEMORY, calls.MEMORY_FIRST_VERSION), most=MOST_BYTES),
    SignalRow(Signal.MEMORY_RESERVED, (calls.MEMORY,), most=MOST_BYTES),
    SignalRow(Signal.SM_CLOCK, (calls.SM_CLOCK,), most=MOST_HERTZ),
    SignalRow(Signal.SM_CLOCK_MOST, (calls.SM_CLOCK_MOST,), ONCE, most=MOST_HERTZ),
    SignalRow(Signal.MEMORY_CLOCK, (calls.MEMORY_CLOCK,), most=MOST_HERTZ),
    SignalRow(Signal.PERFORMANCE_STATE, (calls.PERFORMANCE_STATE,), most=15),
    SignalRow(Signal.POWER, (Field(186, MILLI), Field(185, MILLI), calls.POWER), most=MOST_WATTS),
    SignalRow(
        Signal.POWER_LIMIT, (Field(190, MILLI), calls.POWER_LIMIT), SELDOM_S, most=MOST_WATTS
    ),
    SignalRow(Signal.ENERGY, (Field(83, MILLI), Field(191, MILLI), calls.ENERGY)),
    SignalRow(
        Signal.TEMPERATURE,
        (calls.TEMPERATURE, calls.TEMPERATURE_FIRST_VERSION),
        least=COLDEST,
        most=HOTTEST,
    ),
    # 0 is how a GPU without HBM says that it has no such sensor.
    SignalRow(Signal.MEMORY_TEMPERATURE, (Field(82),), least=1.0, most=HOTTEST),
    SignalRow(
        Signal.TEMPERATURE_MARGIN,
        (calls.MARGIN, calls.MARGIN_BY_THRESHOLD),
        least=COLDEST,
        most=HOTTEST,
    ),
    SignalRow(Signal.RECOVERY_ACTION, (Field(230),), most=MOST_STATE),
    SignalRow(Signal.ECC_CORRECTED, (Field(3), calls.ECC_ERRORS)),
    SignalRow(Signal.ECC_UNCORRECTED, (Field(4), calls.ECC_ERRORS)),
    SignalRow(Signal.ECC_CORRECTED_EVER, (Field(5), calls.ECC_ERRORS_EVER), SELDOM_S),
    SignalRow(Signal.ECC_UNCORRECTED_EVER, (Field(6), calls.ECC_ERRORS_EVER), SELDOM_S),
    SignalRow(Signal.SRAM_THRESHOLD_EXCEEDED, (calls.SRAM_STATUS,), SELDOM_S, most=1),
    SignalRow(Signal.REMAPPED_CORRECTABLE, (Field(142), calls.REMAPPED_ROWS), SELDOM_S),
    SignalRow(Signal.REMAPPED_UNCORRECTABLE, (Field(143), calls.REMAPPED_ROWS), SELDOM_S),
    SignalRow(Signal.REMAP_PENDING, (Field(144), calls.REMAPPED_ROWS), most=1),
    SignalRow(Signal.REMAP_FAILURE, (Field(145), calls.REMAPPED_ROWS), most=1),
    SignalRow(Signal.BANKS_ALL_LEFT, (calls.ROW_REMAP_BANKS,), SELDOM_S),
    SignalRow(Signal.BANKS_MANY_LEFT, (calls.ROW_REMAP_BANKS,), SELDOM_S),
    SignalRow(Signal.BANKS_SOME_LEFT, (calls.ROW_REMAP_BANKS,), SELDOM_S),
    SignalRow(Signal.BANKS_FEW_LEFT, (calls.ROW_REMAP_BANKS,), SELDOM_S),
    SignalRow(Signal.BANKS_NONE_LEFT, (calls.ROW_REMAP_BANKS,), SELDOM_S),
    SignalRow(Signal.RETIRED_CORRECTABLE, (Field(29),), SELDOM_S),
    SignalRow(Signal.RETIRED_UNCORRECTABLE, (Field(30),), SELDOM_S),
    SignalRow(Signal.RETIREMENT_PENDING, (Field(31),), SELDOM_S, most=1),
    SignalRow(Signal.THROTTLED_POWER, (Field(74, NANO),)),
    SignalRow(Signal.THROTTLED_SOFTWARE_THERMAL, (Field(269, NANO),)),
    SignalRow(Signal.THROTTLED_HARDWARE_THERMAL, (Field(270, NANO),)),
    SignalRow(Signal.THROTTLED_BRAKE, (Field(271, NANO),)),
    SignalRow(Signal.THROTTLED_SYNC, (Field(76, NANO),)),
    SignalRow(
        Signal.THROTTLE_REASONS, (calls.THROTTLE_REASONS, calls.THROTTLE_REASONS_FIRST_VERSION)
    ),
    SignalRow(Signal.PCIE_WIDTH, (calls.PCIE_LINK,), SELDOM_S, most=MOST_LANES),
    SignalRow(Signal.PCIE_WIDTH_MOST, (calls.PCIE_LINK_MOST,), ONCE, most=MOST_LANES),
    SignalRow(Signal.PCIE_GENERATION, (calls.PCIE_LINK,), SELDOM_S, most=MOST_GENERATION),
    SignalRow(Signal.PCIE_GENERATION_MOST, (calls.PCIE_LINK_MOST,), ONCE, most=MOST_GENERATION),
    SignalRow(Signal.PCIE_REPLAYS, (Field(94), calls.PCIE_REPLAYS), SELDOM_S),
    SignalRow(Signal.PCIE_RECOVERIES, (Field(169),), SELDOM_S),
    SignalRow(Signal.PCIE_CORRECTABLE, (Field(173),), SELDOM_S),
    SignalRow(Signal.PCIE_NON_FATAL, (Field(179),), SELDOM_S),
    SignalRow(Signal.PCIE_FATAL, (Field(180),), SELDOM_S),
    SignalRow(Signal.PCIE_NAKS_RECEIVED, (Field(174),), SELDOM_S),
    SignalRow(Signal.PCIE_NAKS_SENT, (Field(177),), SELDOM_S),
    SignalRow(Signal.PCIE_RECEIVER, (Field(175),), SELDOM_S),
    SignalRow(Signal.PCIE_BAD_TLP, (Field(176),), SELDOM_S),
    SignalRow(Signal.PCIE_BAD_DLLP, (Field(178),), SELDOM_S),
    SignalRow(Signal.PCIE_LCRC, (Field(182),), SELDOM_S),
    SignalRow(Signal.PCIE_LANE, (Field(183),), SELDOM_S),
    SignalRow(Signal.PCIE_SENT, (Field(197),)),
    SignalRow(Signal.PCIE_RECEIVED, (Field(198),)),
    SignalRow(Signal.NVLINKS_EXPECTED, (Field(91),), SELDOM_S, most=MOST_LINKS),
    SignalRow(
        Signal.NVLINKS_ACTIVE, (LinkField(165, fold=LinkFold.COUNT),), SELDOM_S, most=MOST_LINKS
    ),
    SignalRow(Signal.NVLINK_SPEED, (LinkField(164, MEGA, LinkFold.LEAST),), SELDOM_S),
    # One field tells the sum of all links, in KiB; from Blackwell on each link counts bytes.
    SignalRow(Signal.NVLINK_SENT, (Field(138, KIBI, ALL_LINKS), LinkField(202)), SELDOM_S),
    SignalRow(Signal.NVLINK_RECEIVED, (Field(139, KIBI, ALL_LINKS), LinkField(204)), SELDOM_S),
    SignalRow(Signal.NVLINK_REPLAYS, (LinkField(161),), SELDOM_S),
    SignalRow(Signal.NVLINK_RECOVERIES, (LinkField(162), LinkField(215)), SELDOM_S),
    SignalRow(Signal.NVLINK_CRC, (LinkField(163),), SELDOM_S),
    SignalRow(Signal.NVLINK_RECOVERY_FAILED, (LinkField(214),), SELDOM_S),
    SignalRow(Signal.NVLINK_SYMBOLS, (LinkField(221),), SELDOM_S),
    SignalRow(Signal.NVLINK_EFFECTIVE, (LinkField(219),), SELDOM_S),
    SignalRow(Signal.NVLINK_RECEIVING, (LinkField(208),), SELDOM_S),
    # A GPU with links to its own processor has more NVLinks than those; what is asked of a link
    # that is not there is refused, and left out of the sum.
    SignalRow(Signal.C2C_LINKS, (Field(170),), SELDOM_S, most=MOST_LINKS),
    SignalRow(Signal.C2C_ACTIVE, (LinkField(171, fold=LinkFold.COUNT),), SELDOM_S, most=MOST_LINKS),
    SignalRow(Signal.C2C_ERRORS, (LinkField(231),), SELDOM_S),
    SignalRow(Signal.C2C_REPLAYS, (LinkField(232),), SELDOM_S),
    SignalRow(Signal.FABRIC_STATE, (calls.FABRIC, calls.FABRIC_SECOND_VERSION), SELDOM_S, most=255),
    SignalRow(
        Signal.FABRIC_DEGRADED, (calls.FABRIC, calls.FABRIC_SECOND_VERSION), SELDOM_S, most=1
    ),
)
"""Without the activity of SMs and memory (gpm.py), and without the processes (users.py)."""


def fold(kind: LinkFold, values: Iterable[float]) -> float | None:
    """The links' values as one; None when no link has one."""
    told = list(values)
    if not told:
        return None
    if kind is LinkFold.SUM:
        return sum(told)
    set_ones = [value for value in told if value]
    if kind is LinkFold.COUNT:
        return float(len(set_ones))
    return min(set_ones, default=None)


def name(way: Way) -> str:
    """A way as people and NVML's documentation call it."""
    if isinstance(way, NvmlCall):
        return way.function
    if isinstance(way, LinkField):
        return f"field {way.id} of every link"
    return f"field {way.id}" + (" of all NVLinks" if way.scope == ALL_LINKS else "")


# Where one signal stands with one GPU: which way it is asked, when again, and what refused it.


@dataclass
class SignalState:
    """One signal's way through the ways that its row has."""

    row: SignalRow
    number: int = 0
    due_s: float = float("-inf")
    refusals: list[str] = field(default_factory=list)
    """Why each way so far did not tell it."""
    answer: Answer | None = None
    """Of a field, as it was believed last: the batch hands out the same one while it stays so."""
    counts: dict[int, float] = field(default_factory=dict)
    """By link, what it counted last: a link that falls silent must not make the sum fall back."""

    @property
    def way(self) -> Way:
        """How it is asked now."""
        return self.row.ways[self.number]

    def told(self, now_s: float) -> None:
        """It was told: the same way again, in its rhythm."""
        if self.refusals:
            self.refusals.clear()
        self.due_s = now_s + self.row.every_s

    def refused(self, code: int, now_s: float) -> None:
        """It was not: another way, or the same one when its time has come."""
        self.answer = None
        if code not in calls.SETTLED:
            self._rest(min(self.row.every_s, REFUSED_S), now_s)
        elif self.number + 1 < len(self.row.ways):
            self.number += 1
        else:
            self.number = 0
            self._rest(REFUSED_S, now_s)

    def _rest(self, seconds: float, now_s: float) -> None:
        self.refusals = []
        self.due_s = now_s + seconds


# What to ask a GPU together: the fields of many signals in one batch, and each call once.


@dataclass(frozen=True)
class QueryPlan:
    """For signals that are due together, each by the way that it is asked now."""

    batch: FieldBatch | None
    fields: tuple[tuple[SignalState, Field, int], ...]
    """Signal, field, and its place in the batch."""
    links: tuple[tuple[SignalState, LinkField, slice], ...]
    """Signal, field, and the places of all links in the batch."""
    calls: tuple[tuple[NvmlCall, tuple[SignalState, ...]], ...]


def planned(nvml: Any, links: int, due: Sequence[SignalState]) -> QueryPlan:
    """For a GPU with so many NVLinks."""
    entries: list[tuple[int, int]] = []
    fields: list[tuple[SignalState, Field, int]] = []
    of_links: list[tuple[SignalState, LinkField, slice]] = []
    calls: dict[NvmlCall, list[SignalState]] = {}
    for one in due:
        way = one.way
        begin = len(entries)
        if isinstance(way, NvmlCall):
            calls.setdefault(way, []).append(one)
            continue
        entries += entries_of(way, links)
        if isinstance(way, Field):
            fields.append((one, way, begin))
        else:
            of_links.append((one, way, slice(begin, len(entries))))
    return QueryPlan(
        batch=FieldBatch(nvml, entries) if entries else None,
        fields=tuple(fields),
        links=tuple(of_links),
        calls=tuple((call, tuple(ones)) for call, ones in calls.items()),
    )


def entries_of(way: Field | LinkField, links: int) -> list[tuple[int, int]]:
    """What to put into a batch for it: (field, scope)."""
    if isinstance(way, LinkField):
        return [(way.id, link) for link in range(links)]
    return [(way.id, way.scope)]
