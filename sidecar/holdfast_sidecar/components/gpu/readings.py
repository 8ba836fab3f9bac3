"""What the GPUs said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Signal(str, Enum):
    """One number that a GPU may tell; base units. `gpu.nvml.signals` says from which call."""

    BUSY = "busy_ratio"
    SM_ACTIVE = "sm_active_ratio"
    SM_OCCUPANCY = "sm_occupancy_ratio"
    TENSOR_ACTIVE = "tensor_active_ratio"
    DRAM_ACTIVE = "dram_active_ratio"
    FP64_ACTIVE = "fp64_active_ratio"
    FP32_ACTIVE = "fp32_active_ratio"
    FP16_ACTIVE = "fp16_active_ratio"
    MEMORY_SIZE = "memory_size_bytes"
    MEMORY_USED = "memory_used_bytes"
    MEMORY_RESERVED = "memory_reserved_bytes"
    PROCESSES = "processes"
    SM_CLOCK = "sm_clock_hertz"
    SM_CLOCK_MOST = "sm_clock_most_hertz"
    MEMORY_CLOCK = "memory_clock_hertz"
    PERFORMANCE_STATE = "performance_state"
    POWER = "power_watts"
    POWER_LIMIT = "power_limit_watts"
    ENERGY = "energy_joules"
    TEMPERATURE = "temperature_celsius"
    MEMORY_TEMPERATURE = "memory_temperature_celsius"
    TEMPERATURE_MARGIN = "temperature_margin_celsius"
    RECOVERY_ACTION = "recovery_action"
    ECC_CORRECTED = "ecc_corrected_volatile"
    ECC_UNCORRECTED = "ecc_uncorrected_volatile"
    ECC_CORRECTED_EVER = "ecc_corrected_aggregate"
    ECC_UNCORRECTED_EVER = "ecc_uncorrected_aggregate"
    SRAM_THRESHOLD_EXCEEDED = "sram_threshold_exceeded"
    REMAPPED_CORRECTABLE = "remapped_rows_correctable"
    REMAPPED_UNCORRECTABLE = "remapped_rows_uncorrectable"
    REMAP_PENDING = "row_remap_pending"
    REMAP_FAILURE = "row_remap_failure"
    BANKS_ALL_LEFT = "row_remap_banks_max"
    BANKS_MANY_LEFT = "row_remap_banks_high"
    BANKS_SOME_LEFT = "row_remap_banks_partial"
    BANKS_FEW_LEFT = "row_remap_banks_low"
    BANKS_NONE_LEFT = "row_remap_banks_none"
    RETIRED_CORRECTABLE = "retired_pages_correctable"
    RETIRED_UNCORRECTABLE = "retired_pages_uncorrectable"
    RETIREMENT_PENDING = "page_retirement_pending"
    THROTTLED_POWER = "throttle_power_cap_seconds"
    THROTTLED_SOFTWARE_THERMAL = "throttle_software_thermal_seconds"
    THROTTLED_HARDWARE_THERMAL = "throttle_hardware_thermal_seconds"
    THROTTLED_BRAKE = "throttle_power_brake_seconds"
    THROTTLED_SYNC = "throttle_sync_boost_seconds"
    THROTTLE_REASONS = "throttle_reasons"
    PCIE_WIDTH = "pcie_link_width"
    PCIE_WIDTH_MOST = "pcie_link_width_most"
    PCIE_GENERATION = "pcie_link_generation"
    PCIE_GENERATION_MOST = "pcie_link_generation_most"
    PCIE_REPLAYS = "pcie_replays"
    PCIE_RECOVERIES = "pcie_l0_recoveries"
    PCIE_CORRECTABLE = "pcie_correctable_errors"
    PCIE_NON_FATAL = "pcie_non_fatal_errors"
    PCIE_FATAL = "pcie_fatal_errors"
    PCIE_NAKS_RECEIVED = "pcie_naks_received"
    PCIE_NAKS_SENT = "pcie_naks_sent"
    PCIE_RECEIVER = "pcie_receiver_errors"
    PCIE_BAD_TLP = "pcie_bad_tlp_errors"
    PCIE_BAD_DLLP = "pcie_bad_dllp_errors"
    PCIE_LCRC = "pcie_lcrc_errors"
    PCIE_LANE = "pcie_lane_errors"
    PCIE_RECEIVED = "pcie_receive_bytes"
    PCIE_SENT = "pcie_transmit_bytes"
    NVLINKS_ACTIVE = "nvlinks_active"
    NVLINKS_EXPECTED = "nvlinks_expected"
    NVLINK_SPEED = "nvlink_speed_bytes_per_second"
    NVLINK_RECEIVED = "nvlink_receive_bytes"
    NVLINK_SENT = "nvlink_transmit_bytes"
    NVLINK_REPLAYS = "nvlink_replay_errors"
    NVLINK_RECOVERIES = "nvlink_recovery_errors"
    NVLINK_CRC = "nvlink_crc_errors"
    NVLINK_RECOVERY_FAILED = "nvlink_recovery_failed"
    NVLINK_SYMBOLS = "nvlink_symbol_errors"
    NVLINK_EFFECTIVE = "nvlink_effective_errors"
    NVLINK_RECEIVING = "nvlink_receive_errors"
    C2C_LINKS = "c2c_links"
    C2C_ACTIVE = "c2c_links_active"
    C2C_ERRORS = "c2c_link_errors"
    C2C_REPLAYS = "c2c_link_replays"
    FABRIC_STATE = "fabric_state"
    FABRIC_DEGRADED = "fabric_degraded"


@dataclass(frozen=True)
class GpuUser:
    """A process that computes on a GPU, by its pid as the driver tells it."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one that is there no more (`lost`)."""

    index: int
    uuid: str
    model: str
    pci: str
    """As in sysfs: `0000:17:00.0`, lower case."""
    values: Mapping[Signal, float] = field(default_factory=dict)
    """What it said; a signal that it refused is not in here."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Signal -> why it does not tell it."""
    users: tuple[GpuUser, ...] | None = None
    """None: the driver does not say."""
    lost: str = ""
    """Why it does not answer any more; empty: it does."""
    is_mig: bool = False
    mig_uuids: tuple[str, ...] = ()
    is_ecc_on: bool | None = None
    """None here and below: the driver does not say."""
    is_persistent: bool | None = None
    """Whether the driver stays loaded while nobody uses the GPU."""

    def value(self, signal: Signal) -> float | None:
        """What it said of this; None when it did not."""
        return self.values.get(signal)


@dataclass(frozen=True)
class NvmlSilence:
    """The driver does not answer one of the children that ask it."""

    child: str
    """What it was to do: `poll` or `events`."""
    since_s: float
    """CLOCK_MONOTONIC of its last sign of life, or of its start."""
    asking: str = ""
    """What it had been about to ask; empty: it did not get that far."""
    stuck: int = 0
    """Children that were killed and are not gone."""


@dataclass(frozen=True)
class GpuReading:
    """All GPUs. Without a driver `is_present` is False and there are none.

    A stale reading is the last that came before the driver stopped answering: it says which GPUs
    there are, and nothing of how they fare.
    """

    is_present: bool
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    expected: int | None = None
    """How many there should be: as was set, else the most that were seen."""
    stale_since_s: float | None = None
    """CLOCK_MONOTONIC since when the driver has not answered; None: it is fresh."""
    read_at_s: float = 0.0
    """CLOCK_MONOTONIC of this reading."""
    took_s: float = 0.0
    """How long the driver took for all of it; it grows before a driver stops answering."""
    silence: NvmlSilence | None = None
    """Of a stale reading: what the driver did not answer."""
    stuck: int = 0
    """Children that asked once, were killed and are not gone: they hang in the kernel."""


# Leaves out of a reading what can't be so: garbage is not told, and not judged.

MAY_BE_NEGATIVE = frozenset({Signal.TEMPERATURE_MARGIN})

LARGEST = 2.0**62
"""Drivers answer an unknown counter with all bits set, now and then without one of them. No
counter gets here: in bytes it is some ten years of NVLink."""


def leave_out_garbage(reading: GpuReading) -> GpuReading:
    """The same reading, without values that are no numbers, negative, or out of this world."""
    gpus = tuple(_cleaned(gpu) for gpu in reading.gpus)
    is_sound = all(one is other for one, other in zip(gpus, reading.gpus, strict=True))
    return reading if is_sound else dataclasses.replace(reading, gpus=gpus)


def _cleaned(gpu: Gpu) -> Gpu:
    values = gpu.values.values()
    # Where none is negative none is larger than the sum; with a NaN among them the sum is one.
    if not values or (min(values) >= 0 and sum(values) < LARGEST):
        return gpu
    kept = {signal: value for signal, value in gpu.values.items() if _is_sound(signal, value)}
    return gpu if len(kept) == len(values) else dataclasses.replace(gpu, values=kept)


def _is_sound(signal: Signal, value: float) -> bool:
    if not math.isfinite(value) or value >= LARGEST:
        return False
    return value >= 0 or signal in MAY_BE_NEGATIVE
