"""Metrics of the GPUs; `gpu_signals.py` and `gpu_samples.py` fill them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.readings import Gpu, Signal
from holdfast_sidecar.records.metric import GPU, NODE, RANK, counter, gauge, of_job

SHARES = (
    gauge("gpu_busy_ratio", "ratio", GPU, "Share of time a kernel ran; 1 in a spinning hang, too."),
    gauge("gpu_sm_active_ratio", "ratio", GPU, "Share of multiprocessors with work (Hopper on)."),
    gauge("gpu_sm_occupancy_ratio", "ratio", GPU, "Share of the warps that they could hold."),
    gauge("gpu_tensor_active_ratio", "ratio", GPU, "Share of time the tensor cores worked."),
    gauge("gpu_dram_active_ratio", "ratio", GPU, "Share of the memory's bandwidth in use."),
    gauge(
        "gpu_pipe_active_ratio",
        "ratio",
        (*GPU, "pipe"),
        "Share of time the arithmetic pipe worked (fp64, fp32, fp16).",
    ),
)

MEMORY = (
    gauge("gpu_memory_size_bytes", "bytes", GPU, "Memory."),
    gauge("gpu_memory_used_bytes", "bytes", GPU, "Memory in use."),
    gauge("gpu_memory_reserved_bytes", "bytes", GPU, "Memory that driver and firmware keep."),
    gauge("gpu_processes", "", GPU, "Processes that compute on it."),
)

PACE = (
    gauge("gpu_sm_clock_hertz", "hertz", GPU, "Clock of the multiprocessors."),
    gauge("gpu_sm_clock_max_hertz", "hertz", GPU, "The highest it may have."),
    gauge("gpu_memory_clock_hertz", "hertz", GPU, "Clock of the memory."),
    gauge("gpu_pstate_id", "", GPU, "Performance state: 0 is the fastest."),
    gauge("gpu_power_watts", "watts", GPU, "Power drawn."),
    gauge("gpu_power_limit_watts", "watts", GPU, "Enforced power limit."),
    counter("gpu_energy_joules_total", "joules", GPU, "Energy since the driver was loaded."),
    gauge(
        "gpu_temperature_celsius",
        "celsius",
        (*GPU, "sensor"),
        "Temperature of the chip (gpu) and of its memory.",
    ),
    gauge(
        "gpu_temperature_margin_celsius",
        "celsius",
        GPU,
        "Degrees left until it slows itself down, whichever model it is.",
    ),
    counter(
        "gpu_throttle_seconds_total",
        "seconds",
        (*GPU, "reason"),
        "Time it was slowed down, since the driver was loaded; power_cap is usual at full load.",
    ),
    gauge("gpu_throttled", "", (*GPU, "reason"), "1 while it is slowed down for this reason."),
)

FAULTS = (
    gauge(
        "gpu_recovery_action_id",
        "",
        GPU,
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain of peer-to-peer work,"
        " 4 drain and reset, 5 IMEX domain, 6 bus reset, 7 system reboot.",
    ),
    counter(
        "gpu_ecc_errors_total",
        "",
        (*GPU, "error", "scope"),
        "ECC errors since the driver was loaded (volatile), and in the GPU's life (aggregate).",
    ),
    gauge("gpu_sram_threshold_exceeded", "", GPU, "1 when its SRAM had more errors than it may."),
    counter("gpu_remapped_rows_total", "", (*GPU, "error"), "Rows of memory that were remapped."),
    gauge("gpu_row_remap_pending", "", GPU, "1 when a row will be remapped at the next reset."),
    gauge("gpu_row_remap_failure", "", GPU, "1 when a row could not be remapped."),
    gauge(
        "gpu_row_remap_banks",
        "",
        (*GPU, "availability"),
        "Banks of memory, by how many spare rows they have left.",
    ),
    counter("gpu_retired_pages_total", "", (*GPU, "error"), "Retired pages, before Ampere."),
    gauge("gpu_page_retirement_pending", "", GPU, "1 when one will be retired at the next reset."),
)

LINKS = (
    gauge("gpu_pcie_link_width", "", GPU, "Lanes of its PCIe link now."),
    gauge("gpu_pcie_link_width_max", "", GPU, "Lanes that it and the slot could have."),
    gauge("gpu_pcie_link_generation", "", GPU, "PCIe generation now; idle GPUs lower it."),
    gauge("gpu_pcie_link_generation_max", "", GPU, "The highest that it and the slot can do."),
    counter("gpu_pcie_receive_bytes_total", "bytes", GPU, "Received over PCIe."),
    counter("gpu_pcie_transmit_bytes_total", "bytes", GPU, "Sent over PCIe."),
    counter("gpu_pcie_replays_total", "", GPU, "PCIe packets that were sent again."),
    counter("gpu_pcie_l0_recoveries_total", "", GPU, "Retrainings of the PCIe link."),
    counter("gpu_pcie_errors_total", "", (*GPU, "kind"), "PCIe errors that the GPU reports."),
    gauge("gpu_nvlinks_active", "", GPU, "NVLinks that are up."),
    gauge("gpu_nvlinks_expected", "", GPU, "NVLinks that should be."),
    gauge("gpu_nvlink_speed_bytes_per_second", "bytes", GPU, "Speed of one NVLink."),
    counter("gpu_nvlink_receive_bytes_total", "bytes", GPU, "Received over all NVLinks."),
    counter("gpu_nvlink_transmit_bytes_total", "bytes", GPU, "Sent over all NVLinks."),
    counter("gpu_nvlink_errors_total", "", (*GPU, "kind"), "NVLink errors, all links together."),
    gauge("gpu_c2c_links", "", GPU, "Links to a processor in its own package (Grace)."),
    gauge("gpu_c2c_links_active", "", GPU, "Those of them that are up."),
    counter("gpu_c2c_errors_total", "", (*GPU, "kind"), "Errors of these links, all together."),
    gauge(
        "gpu_fabric_state_id",
        "",
        GPU,
        "NVLink fabric: 0 none, 1 not started, 2 in progress, 3 completed.",
    ),
    gauge("gpu_fabric_degraded", "", GPU, "1 when the NVLink fabric calls it degraded."),
)

GPUS = (
    gauge(
        "gpu_info",
        "",
        (*GPU, "uuid", "model", "pci", "driver", "mig", "ecc", "persistence"),
        "A GPU; always 1, its identity and how it is set (on, off) stand in the labels.",
    ),
    gauge(
        "gpu_rank_info",
        "",
        (*GPU, "rank", "local_rank", "known_by"),
        "Whose GPU it is; always 1, one series for each rank on it. `known_by` says who tells:"
        " torch, driver, one_visible, visible_list, local_rank, before.",
    ),
    gauge("gpu_up", "", GPU, "1 while it answers; 0 when it is lost."),
    gauge("node_gpus", "", NODE, "GPUs that answer; absent without a driver."),
    gauge("node_gpus_expected", "", NODE, "GPUs that there should be: as set, or the most seen."),
    gauge(
        "gpu_last_reading_timestamp_seconds",
        "seconds",
        NODE,
        "When the driver last answered; while it does not, values of GPUs are absent.",
    ),
    *SHARES,
    *MEMORY,
    *PACE,
    *FAULTS,
    *LINKS,
)

ENERGY = (
    counter(
        "rank_energy_joules_total",
        "joules",
        RANK,
        "Energy of the rank's GPUs since the sidecar began; it goes on over restarts.",
    ),
    gauge("rank_power_watts", "watts", RANK, "Average power of its GPUs in the last minute."),
    gauge("rank_step_energy_joules", "joules", RANK, "Energy of one of its latest steps."),
    gauge(
        "rank_token_energy_joules",
        "joules",
        RANK,
        "The same for one token, of a rank that reports tokens.",
    ),
    counter("rank_tokens_total", "", RANK, "Tokens that it reported to have trained on."),
    of_job(
        gauge(
            "job_token_energy_joules",
            "joules",
            ("run",),
            "Energy of all ranks for one token; absent unless all are metered and tokens reported.",
        )
    ),
)


# Which GPU is which on the page: by its index, as everywhere else.


def labelled(gpus: Iterable[Gpu]) -> list[tuple[str, Gpu]]:
    """Each with its label; no label twice, or a scrape would have the same series with two values.

    The driver counts anew when it begins anew: one that is gone by then may have the index that
    another has now, and is told by its PCI address.
    """
    found: dict[str, Gpu] = {}
    for gpu in sorted(gpus, key=lambda gpu: bool(gpu.lost)):
        names = (str(gpu.index), gpu.pci, gpu.uuid)
        name = next((name for name in names if name and name not in found), "")
        if name:
            found[name] = gpu
    return list(found.items())


# Which metric each number of a GPU is told as, and under which labels.


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


# Metrics of how NVIDIA's driver answers; `nvml_samples.py` fills them in.

NVML = (
    gauge(
        "gpu_readings_stale",
        "",
        NODE,
        "1 while the driver does not answer: values of GPUs are absent, who they are is not.",
    ),
    gauge(
        "gpu_reading_duration_seconds",
        "seconds",
        NODE,
        "What the driver took for the newest reading of all GPUs.",
    ),
    gauge(
        "nvml_silent_since_timestamp_seconds",
        "seconds",
        (*NODE, "child"),
        "Since when the driver has not answered a child process that asks it (poll, events).",
    ),
    gauge(
        "nvml_stuck_children",
        "",
        (*NODE, "child"),
        "Child processes that hang in the driver and can't be killed.",
    ),
    gauge("gpu_events_watched", "", NODE, "GPUs whose events (XIDs above all) are waited for."),
    counter(
        "gpu_events_total",
        "",
        (*NODE, "event"),
        "Events that the driver told besides XIDs, or with a number that can't be one's "
        "(`unknown_xid`), since the sidecar's start.",
    ),
)
