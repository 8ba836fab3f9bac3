"""Which metric each number of a GPU is told as, and under which labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.readings.gpu import Signal


@dataclass(frozen=True)
class Shown:
    """One number's metric, by its name without the prefix."""

    signal: Signal
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


def _shown(signal: Signal, name: str, **labels: str) -> Shown:
    return Shown(signal, name, labels)


SHOWN = (
    _shown(Signal.BUSY, "gpu_busy_ratio"),
    _shown(Signal.SM_ACTIVE, "gpu_sm_active_ratio"),
    _shown(Signal.SM_OCCUPANCY, "gpu_sm_occupancy_ratio"),
    _shown(Signal.TENSOR_ACTIVE, "gpu_tensor_active_ratio"),
    _shown(Signal.DRAM_ACTIVE, "gpu_dram_active_ratio"),
    _shown(Signal.FP64_ACTIVE, "gpu_pipe_active_ratio", pipe="fp64"),
    _shown(Signal.FP32_ACTIVE, "gpu_pipe_active_ratio", pipe="fp32"),
    _shown(Signal.FP16_ACTIVE, "gpu_pipe_active_ratio", pipe="fp16"),
    _shown(Signal.MEMORY_SIZE, "gpu_memory_size_bytes"),
    _shown(Signal.MEMORY_USED, "gpu_memory_used_bytes"),
    _shown(Signal.MEMORY_RESERVED, "gpu_memory_reserved_bytes"),
    _shown(Signal.PROCESSES, "gpu_processes"),
    _shown(Signal.SM_CLOCK, "gpu_sm_clock_hertz"),
    _shown(Signal.SM_CLOCK_MOST, "gpu_sm_clock_max_hertz"),
    _shown(Signal.MEMORY_CLOCK, "gpu_memory_clock_hertz"),
    _shown(Signal.PERFORMANCE_STATE, "gpu_pstate_id"),
    _shown(Signal.POWER, "gpu_power_watts"),
    _shown(Signal.POWER_LIMIT, "gpu_power_limit_watts"),
    _shown(Signal.ENERGY, "gpu_energy_joules_total"),
    _shown(Signal.TEMPERATURE, "gpu_temperature_celsius", sensor="gpu"),
    _shown(Signal.MEMORY_TEMPERATURE, "gpu_temperature_celsius", sensor="memory"),
    _shown(Signal.TEMPERATURE_MARGIN, "gpu_temperature_margin_celsius"),
    _shown(Signal.THROTTLED_POWER, "gpu_throttle_seconds_total", reason="power_cap"),
    _shown(
        Signal.THROTTLED_SOFTWARE_THERMAL, "gpu_throttle_seconds_total", reason="software_thermal"
    ),
    _shown(
        Signal.THROTTLED_HARDWARE_THERMAL, "gpu_throttle_seconds_total", reason="hardware_thermal"
    ),
    _shown(Signal.THROTTLED_BRAKE, "gpu_throttle_seconds_total", reason="power_brake"),
    _shown(Signal.THROTTLED_SYNC, "gpu_throttle_seconds_total", reason="sync_boost"),
    _shown(Signal.RECOVERY_ACTION, "gpu_recovery_action_id"),
    _shown(Signal.ECC_CORRECTED, "gpu_ecc_errors_total", error="corrected", scope="volatile"),
    _shown(Signal.ECC_UNCORRECTED, "gpu_ecc_errors_total", error="uncorrected", scope="volatile"),
    _shown(Signal.ECC_CORRECTED_EVER, "gpu_ecc_errors_total", error="corrected", scope="aggregate"),
    _shown(
        Signal.ECC_UNCORRECTED_EVER, "gpu_ecc_errors_total", error="uncorrected", scope="aggregate"
    ),
    _shown(Signal.SRAM_THRESHOLD_EXCEEDED, "gpu_sram_threshold_exceeded"),
    _shown(Signal.REMAPPED_CORRECTABLE, "gpu_remapped_rows_total", error="corrected"),
    _shown(Signal.REMAPPED_UNCORRECTABLE, "gpu_remapped_rows_total", error="uncorrected"),
    _shown(Signal.REMAP_PENDING, "gpu_row_remap_pending"),
    _shown(Signal.REMAP_FAILURE, "gpu_row_remap_failure"),
    _shown(Signal.BANKS_ALL_LEFT, "gpu_row_remap_banks", availability="max"),
    _shown(Signal.BANKS_MANY_LEFT, "gpu_row_remap_banks", availability="high"),
    _shown(Signal.BANKS_SOME_LEFT, "gpu_row_remap_banks", availability="partial"),
    _shown(Signal.BANKS_FEW_LEFT, "gpu_row_remap_banks", availability="low"),
    _shown(Signal.BANKS_NONE_LEFT, "gpu_row_remap_banks", availability="none"),
    _shown(Signal.RETIRED_CORRECTABLE, "gpu_retired_pages_total", error="corrected"),
    _shown(Signal.RETIRED_UNCORRECTABLE, "gpu_retired_pages_total", error="uncorrected"),
    _shown(Signal.RETIREMENT_PENDING, "gpu_page_retirement_pending"),
    _shown(Signal.PCIE_WIDTH, "gpu_pcie_link_width"),
    _shown(Signal.PCIE_WIDTH_MOST, "gpu_pcie_link_width_max"),
    _shown(Signal.PCIE_GENERATION, "gpu_pcie_link_generation"),
    _shown(Signal.PCIE_GENERATION_MOST, "gpu_pcie_link_generation_max"),
    _shown(Signal.PCIE_RECEIVED, "gpu_pcie_receive_bytes_total"),
    _shown(Signal.PCIE_SENT, "gpu_pcie_transmit_bytes_total"),
    _shown(Signal.PCIE_REPLAYS, "gpu_pcie_replays_total"),
    _shown(Signal.PCIE_RECOVERIES, "gpu_pcie_l0_recoveries_total"),
    _shown(Signal.PCIE_CORRECTABLE, "gpu_pcie_errors_total", kind="correctable"),
    _shown(Signal.PCIE_NON_FATAL, "gpu_pcie_errors_total", kind="non_fatal"),
    _shown(Signal.PCIE_FATAL, "gpu_pcie_errors_total", kind="fatal"),
    _shown(Signal.PCIE_NAKS_RECEIVED, "gpu_pcie_errors_total", kind="nak_received"),
    _shown(Signal.PCIE_NAKS_SENT, "gpu_pcie_errors_total", kind="nak_sent"),
    _shown(Signal.PCIE_RECEIVER, "gpu_pcie_errors_total", kind="receiver"),
    _shown(Signal.PCIE_BAD_TLP, "gpu_pcie_errors_total", kind="bad_tlp"),
    _shown(Signal.PCIE_BAD_DLLP, "gpu_pcie_errors_total", kind="bad_dllp"),
    _shown(Signal.PCIE_LCRC, "gpu_pcie_errors_total", kind="lcrc"),
    _shown(Signal.PCIE_LANE, "gpu_pcie_errors_total", kind="lane"),
    _shown(Signal.NVLINKS_ACTIVE, "gpu_nvlinks_active"),
    _shown(Signal.NVLINKS_EXPECTED, "gpu_nvlinks_expected"),
    _shown(Signal.NVLINK_SPEED, "gpu_nvlink_speed_bytes_per_second"),
    _shown(Signal.NVLINK_RECEIVED, "gpu_nvlink_receive_bytes_total"),
    _shown(Signal.NVLINK_SENT, "gpu_nvlink_transmit_bytes_total"),
    _shown(Signal.NVLINK_REPLAYS, "gpu_nvlink_errors_total", kind="replay"),
    _shown(Signal.NVLINK_RECOVERIES, "gpu_nvlink_errors_total", kind="recovery"),
    _shown(Signal.NVLINK_CRC, "gpu_nvlink_errors_total", kind="crc"),
    _shown(Signal.NVLINK_RECOVERY_FAILED, "gpu_nvlink_errors_total", kind="recovery_failed"),
    _shown(Signal.NVLINK_SYMBOLS, "gpu_nvlink_errors_total", kind="symbol"),
    _shown(Signal.NVLINK_EFFECTIVE, "gpu_nvlink_errors_total", kind="effective"),
    _shown(Signal.NVLINK_RECEIVING, "gpu_nvlink_errors_total", kind="receive"),
    _shown(Signal.C2C_LINKS, "gpu_c2c_links"),
    _shown(Signal.C2C_ACTIVE, "gpu_c2c_links_active"),
    _shown(Signal.C2C_ERRORS, "gpu_c2c_errors_total", kind="link"),
    _shown(Signal.C2C_REPLAYS, "gpu_c2c_errors_total", kind="replay"),
    _shown(Signal.FABRIC_STATE, "gpu_fabric_state_id"),
    _shown(Signal.FABRIC_DEGRADED, "gpu_fabric_degraded"),
)
"""All of them but the bits of THROTTLE_REASONS, which are shown one by one."""

REASONS = {
    "power_cap": 0x04,
    "hardware_slowdown": 0x08,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}
"""nvmlClocksEventReason… of nvml.h; what is left out is idleness and clocks that somebody set."""
