"""The bytes that the fake library and whoever drives it share.

`build.py` writes the names and sizes below into layout.h for the C code; the structures are written
out twice, here and in fake_nvml.c, and the library tells the size of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MOST_GPUS = 16
MOST_FIELDS = 320
MOST_LINKS = 36
"""As NVML_NVLINK_MAX_LINKS of the newest nvidia-ml-py; Hopper has 18."""
MOST_METRICS = 256
MOST_USERS = 16
MOST_MIGS = 8
MOST_EVENTS = 256
MOST_CALLS = 128
MOST_NUMBERS = 128

CALLS = (
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlErrorString",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetFieldValues",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmSampleFree",
    "nvmlGpmMetricsGet",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
)
"""Every function that the library has."""

NUMBERS = (
    "busy_percent",
    "memory_busy_percent",
    "temperature",
    "temperature_margin",
    "shutdown_temperature",
    "slowdown_temperature",
    "memory_most_temperature",
    "gpu_most_temperature",
    "memory_total",
    "memory_reserved",
    "memory_used",
    "power_milliwatts",
    "power_limit_milliwatts",
    "energy_millijoules",
    "graphics_clock",
    "sm_clock",
    "memory_clock",
    "video_clock",
    "graphics_clock_most",
    "sm_clock_most",
    "memory_clock_most",
    "video_clock_most",
    "event_reasons",
    "performance_state",
    "ecc_mode",
    "ecc_corrected_volatile",
    "ecc_uncorrected_volatile",
    "ecc_corrected_aggregate",
    "ecc_uncorrected_aggregate",
    "sram_corrected",
    "sram_uncorrected",
    "sram_threshold_exceeded",
    "remapped_correctable",
    "remapped_uncorrectable",
    "remap_pending",
    "remap_failure",
    "banks_max",
    "banks_high",
    "banks_partial",
    "banks_low",
    "banks_none",
    "retired_correctable",
    "retired_uncorrectable",
    "retirement_pending",
    "pcie_generation",
    "pcie_width",
    "pcie_generation_most",
    "pcie_width_most",
    "pcie_replays",
    "mig_mode",
    "mig_mode_pending",
    "fabric_state",
    "fabric_status",
    "fabric_health_mask",
    "fabric_health_summary",
    "persistence_mode",
    "gpm_supported",
    "event_types",
)
"""What a GPU tells through calls of its own, in NVML's units."""


class FieldCell(ctypes.Structure):
    """One value of nvmlDeviceGetFieldValues; all zero: NOT_SUPPORTED."""

    _fields_ = (
        ("bits", ctypes.c_uint64),
        ("is_there", ctypes.c_uint32),
        ("type", ctypes.c_uint16),
        ("code", ctypes.c_uint16),
    )


class MetricCell(ctypes.Structure):
    """One GPM metric; all zero: NOT_SUPPORTED."""

    _fields_ = (
        ("value", ctypes.c_double),
        ("is_there", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
    )


class User(ctypes.Structure):
    """A process on a GPU."""

    _fields_ = (("pid", ctypes.c_uint64), ("memory", ctypes.c_uint64))


class GpuState(ctypes.Structure):
    """One GPU. `fields[link][id]`; what has no link lies under link 0."""

    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 32),
        ("mig_uuids", (ctypes.c_char * 96) * MOST_MIGS),
        ("domain", ctypes.c_uint32),
        ("bus", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("lost_code", ctypes.c_uint32),
        ("user_count", ctypes.c_uint32),
        ("mig_count", ctypes.c_uint32),
        ("users", User * MOST_USERS),
        ("numbers", ctypes.c_int64 * MOST_NUMBERS),
        ("codes", ctypes.c_uint32 * MOST_CALLS),
        ("metrics", MetricCell * MOST_METRICS),
        ("fields", (FieldCell * MOST_FIELDS) * MOST_LINKS),
    )


class CallState(ctypes.Structure):
    """How one call behaves, for all GPUs."""

    _fields_ = (
        ("asked", ctypes.c_uint64),
        ("code", ctypes.c_uint32),
        ("delay_us", ctypes.c_uint32),
        ("hanging", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )


class Event(ctypes.Structure):
    """One event, as nvmlEventSetWait tells it."""

    _fields_ = (
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )


class State(ctypes.Structure):
    """The whole file."""

    _fields_ = (
        ("changed", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("driver_code", ctypes.c_uint32),
        ("loads", ctypes.c_uint32),
        ("handles", ctypes.c_uint32),
        ("later_ms", ctypes.c_uint32),
        ("driver", ctypes.c_char * 80),
        ("calls", CallState * MOST_CALLS),
        ("events_sent", ctypes.c_uint64),
        ("events", Event * MOST_EVENTS),
        ("gpus", GpuState * MOST_GPUS),
    )


def header() -> str:
    """layout.h: the names and sizes, for the C code."""
    sizes = {name: value for name, value in globals().items() if name.startswith("MOST_")}
    lines = [f"#define {name} {value}" for name, value in sizes.items()]
    lines += _enumerated("CALL", CALLS) + _enumerated("NUMBER", NUMBERS)
    return "\n".join(lines) + "\n"


def _enumerated(prefix: str, names: tuple[str, ...]) -> list[str]:
    return [f"enum {{ {', '.join(f'{prefix}_{name}' for name in names)} }};"]


# What a healthy GPU of each generation says, as a driver of the 580 series tells it.
#
# The figures are a machine at rest with one idle process; a story or a test turns what it needs.

GIB = 1 << 30

NUMBER_VALUES: Mapping[str, int] = {
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
    numbers: Mapping[str, int] = field(default_factory=lambda: NUMBER_VALUES)
    fields: Mapping[int, float] = field(default_factory=lambda: FIELDS)
    link_fields: Mapping[int, float] = field(default_factory=lambda: LINK_FIELDS)
    all_links_fields: Mapping[int, float] = field(default_factory=lambda: ALL_LINKS_FIELDS)
    metrics: Mapping[int, float] = field(default_factory=lambda: METRICS)


HOPPER = Profile("NVIDIA H100 80GB HBM3")

BLACKWELL = replace(
    HOPPER,
    model="NVIDIA B200",
    numbers={**NUMBER_VALUES, "memory_total": 180 * GIB, "power_limit_milliwatts": 1_000_000},
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
        **NUMBER_VALUES,
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
