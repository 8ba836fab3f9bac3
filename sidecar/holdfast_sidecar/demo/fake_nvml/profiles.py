"""What a healthy GPU of each generation says, as a driver of the 580 series tells it.

The figures are a machine at rest with one idle process; a story or a test turns what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

GIB = 1 << 30

NUMBERS: Mapping[str, int] = {
    "busy_percent": 0,
    "memory_busy_percent": 0,
    "temperature": 34,
    "temperature_margin": 53,
    "shutdown_temperature": 92,
    "slowdown_temperature": 87,
    "memory_most_temperature": 95,
    "gpu_most_temperature": 87,
    "memory_total": 80 * GIB,
    "memory_reserved": 600 << 20,
    "memory_used": 0,
    "power_milliwatts": 72_000,
    "power_limit_milliwatts": 700_000,
    "energy_millijoules": 5_000_000,
    "graphics_clock": 1980,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "video_clock": 1545,
    "graphics_clock_most": 1980,
    "sm_clock_most": 1980,
    "memory_clock_most": 2619,
    "video_clock_most": 1545,
    "event_reasons": 1,
    "performance_state": 0,
    "ecc_mode": 1,
    "banks_max": 5120,
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_generation_most": 5,
    "pcie_width_most": 16,
    "fabric_state": 3,
    "fabric_health_mask": 2,
    "fabric_health_summary": 1,
    "persistence_mode": 1,
    "gpm_supported": 1,
    "event_types": 0x1DF,
}

FIELDS: Mapping[int, float] = {
    **dict.fromkeys((3, 4, 5, 6), 0),
    **dict.fromkeys((74, 76, 269, 270, 271), 0),
    82: 41,
    83: 5_000_000,
    91: 18,
    **dict.fromkeys((94, 169, *range(173, 181), 182, 183), 0),
    **dict.fromkeys((142, 143, 144, 145), 0),
    185: 72_000,
    186: 72_000,
    190: 700_000,
    197: 0,
    198: 0,
    230: 0,
}

LINK_FIELDS: Mapping[int, float] = {161: 0, 162: 0, 163: 0, 164: 26_562, 165: 1}
ALL_LINKS_FIELDS: Mapping[int, float] = {138: 0, 139: 0}

METRICS: Mapping[int, float] = dict.fromkeys((2, 3, 5, 10, 11, 12, 13), 0.0)


@dataclass(frozen=True)
class Profile:
    """One kind of GPU."""

    model: str
    driver: str = "580.95.05"
    links: int = 18
    numbers: Mapping[str, int] = field(default_factory=lambda: NUMBERS)
    fields: Mapping[int, float] = field(default_factory=lambda: FIELDS)
    link_fields: Mapping[int, float] = field(default_factory=lambda: LINK_FIELDS)
    all_links_fields: Mapping[int, float] = field(default_factory=lambda: ALL_LINKS_FIELDS)
    metrics: Mapping[int, float] = field(default_factory=lambda: METRICS)


HOPPER = Profile("NVIDIA H100 80GB HBM3")

BLACKWELL = replace(
    HOPPER,
    model="NVIDIA B200",
    numbers={**NUMBERS, "memory_total": 180 * GIB, "power_limit_milliwatts": 1_000_000},
    fields={**FIELDS, 190: 1_000_000},
    # Replay, recovery and CRC counts are gone; the link layer counts as InfiniBand's does.
    link_fields={164: 53_125, 165: 1, 202: 0, 204: 0, 208: 0, 214: 0, 215: 0, 219: 0, 221: 0},
    all_links_fields={},
)

AMPERE = replace(
    HOPPER,
    model="NVIDIA A100-SXM4-80GB",
    links=12,
    numbers={
        **NUMBERS,
        "gpm_supported": 0,
        "pcie_generation": 4,
        "pcie_generation_most": 4,
        "fabric_state": 0,
        "power_limit_milliwatts": 400_000,
    },
    fields={**FIELDS, 91: 12, 190: 400_000},
    link_fields={**LINK_FIELDS, 164: 25_781},
    metrics={},
)

VOLTA = replace(
    AMPERE,
    model="Tesla V100-SXM2-32GB",
    driver="535.261.03",
    links=6,
    numbers={
        **AMPERE.numbers,
        "memory_total": 32 * GIB,
        "pcie_generation": 3,
        "pcie_generation_most": 3,
        "power_limit_milliwatts": 300_000,
    },
    # Pages are retired where newer memory remaps rows.
    fields={
        **{number: value for number, value in FIELDS.items() if number not in range(142, 146)},
        **dict.fromkeys((29, 30, 31), 0),
        91: 6,
        190: 300_000,
    },
)
