"""Where each signal lies in the fake driver, in NVML's own units.

Written from NVML's documentation and not from what Holdfast asks, so that a wrong unit there shows.
A signal may lie in several places: a field, and the older call that tells the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.components.gpu.readings import Signal

ALL_LINKS = -1
"""The sum over a GPU's NVLinks, that the driver keeps itself."""


@dataclass(frozen=True)
class Number:
    """Told by a call of its own. The driver's number is ours times `per_unit`."""

    name: str
    per_unit: float = 1


@dataclass(frozen=True)
class Field:
    """Told by nvmlDeviceGetFieldValues. `link` ALL_LINKS or one of them."""

    id: int
    per_unit: float = 1
    link: int = 0


@dataclass(frozen=True)
class Metric:
    """Told by GPM."""

    id: int
    per_unit: float = 1


Place = Number | Field | Metric

PERCENT = 100
MILLI = 1000
NANO = 1e9
PER_MEGA = 1e-6
PER_KIBI = 1 / 1024

PLACES: Mapping[Signal, tuple[Place, ...]] = {
    Signal.BUSY: (Number("busy_percent", PERCENT),),
    Signal.SM_ACTIVE: (Metric(2, PERCENT),),
    Signal.SM_OCCUPANCY: (Metric(3, PERCENT),),
    Signal.TENSOR_ACTIVE: (Metric(5, PERCENT),),
    Signal.DRAM_ACTIVE: (Metric(10, PERCENT),),
    Signal.FP64_ACTIVE: (Metric(11, PERCENT),),
    Signal.FP32_ACTIVE: (Metric(12, PERCENT),),
    Signal.FP16_ACTIVE: (Metric(13, PERCENT),),
    Signal.MEMORY_SIZE: (Number("memory_total"),),
    Signal.MEMORY_USED: (Number("memory_used"),),
    Signal.MEMORY_RESERVED: (Number("memory_reserved"),),
    Signal.SM_CLOCK: (Number("sm_clock", PER_MEGA), Number("graphics_clock", PER_MEGA)),
    Signal.SM_CLOCK_MOST: (
        Number("sm_clock_most", PER_MEGA),
        Number("graphics_clock_most", PER_MEGA),
    ),
    Signal.MEMORY_CLOCK: (Number("memory_clock", PER_MEGA),),
    Signal.PERFORMANCE_STATE: (Number("performance_state"),),
    Signal.POWER: (Field(186, MILLI), Field(185, MILLI), Number("power_milliwatts", MILLI)),
    Signal.POWER_LIMIT: (Field(190, MILLI), Number("power_limit_milliwatts", MILLI)),
    Signal.ENERGY: (Field(83, MILLI), Field(191, MILLI), Number("energy_millijoules", MILLI)),
    Signal.TEMPERATURE: (Number("temperature"),),
    Signal.MEMORY_TEMPERATURE: (Field(82),),
    Signal.TEMPERATURE_MARGIN: (Number("temperature_margin"),),
    Signal.RECOVERY_ACTION: (Field(230),),
    Signal.ECC_CORRECTED: (Field(3), Number("ecc_corrected_volatile")),
    Signal.ECC_UNCORRECTED: (Field(4), Number("ecc_uncorrected_volatile")),
    Signal.ECC_CORRECTED_EVER: (Field(5), Number("ecc_corrected_aggregate")),
    Signal.ECC_UNCORRECTED_EVER: (Field(6), Number("ecc_uncorrected_aggregate")),
    Signal.SRAM_THRESHOLD_EXCEEDED: (Number("sram_threshold_exceeded"),),
    Signal.REMAPPED_CORRECTABLE: (Field(142), Number("remapped_correctable")),
    Signal.REMAPPED_UNCORRECTABLE: (Field(143), Number("remapped_uncorrectable")),
    Signal.REMAP_PENDING: (Field(144), Number("remap_pending")),
    Signal.REMAP_FAILURE: (Field(145), Number("remap_failure")),
    Signal.BANKS_ALL_LEFT: (Number("banks_max"),),
    Signal.BANKS_MANY_LEFT: (Number("banks_high"),),
    Signal.BANKS_SOME_LEFT: (Number("banks_partial"),),
    Signal.BANKS_FEW_LEFT: (Number("banks_low"),),
    Signal.BANKS_NONE_LEFT: (Number("banks_none"),),
    Signal.RETIRED_CORRECTABLE: (Field(29), Number("retired_correctable")),
    Signal.RETIRED_UNCORRECTABLE: (Field(30), Number("retired_uncorrectable")),
    Signal.RETIREMENT_PENDING: (Field(31), Number("retirement_pending")),
    Signal.THROTTLED_POWER: (Field(74, NANO),),
    Signal.THROTTLED_SOFTWARE_THERMAL: (Field(269, NANO),),
    Signal.THROTTLED_HARDWARE_THERMAL: (Field(270, NANO),),
    Signal.THROTTLED_BRAKE: (Field(271, NANO),),
    Signal.THROTTLED_SYNC: (Field(76, NANO),),
    Signal.THROTTLE_REASONS: (Number("event_reasons"),),
    Signal.PCIE_WIDTH: (Number("pcie_width"),),
    Signal.PCIE_WIDTH_MOST: (Number("pcie_width_most"),),
    Signal.PCIE_GENERATION: (Number("pcie_generation"),),
    Signal.PCIE_GENERATION_MOST: (Number("pcie_generation_most"),),
    Signal.PCIE_REPLAYS: (Field(94), Number("pcie_replays")),
    Signal.PCIE_RECOVERIES: (Field(169),),
    Signal.PCIE_CORRECTABLE: (Field(173),),
    Signal.PCIE_NON_FATAL: (Field(179),),
    Signal.PCIE_FATAL: (Field(180),),
    Signal.PCIE_NAKS_RECEIVED: (Field(174),),
    Signal.PCIE_NAKS_SENT: (Field(177),),
    Signal.PCIE_RECEIVER: (Field(175),),
    Signal.PCIE_BAD_TLP: (Field(176),),
    Signal.PCIE_BAD_DLLP: (Field(178),),
    Signal.PCIE_LCRC: (Field(182),),
    Signal.PCIE_LANE: (Field(183),),
    Signal.PCIE_SENT: (Field(197),),
    Signal.PCIE_RECEIVED: (Field(198),),
    Signal.NVLINKS_EXPECTED: (Field(91),),
    Signal.NVLINK_SPEED: (Field(164, PER_MEGA),),
    Signal.NVLINK_SENT: (Field(138, PER_KIBI, ALL_LINKS),),
    Signal.NVLINK_RECEIVED: (Field(139, PER_KIBI, ALL_LINKS),),
    Signal.NVLINK_REPLAYS: (Field(161),),
    Signal.NVLINK_RECOVERIES: (Field(162),),
    Signal.NVLINK_CRC: (Field(163),),
    Signal.NVLINK_RECOVERY_FAILED: (Field(214),),
    Signal.NVLINK_SYMBOLS: (Field(221),),
    Signal.NVLINK_EFFECTIVE: (Field(219),),
    Signal.NVLINK_RECEIVING: (Field(208),),
    Signal.C2C_LINKS: (Field(170),),
    Signal.C2C_ERRORS: (Field(231),),
    Signal.C2C_REPLAYS: (Field(232),),
    Signal.FABRIC_STATE: (Number("fabric_state"),),
}
"""Signals of all NVLinks that are not here by a sum are told link by link: this sets link 0."""
