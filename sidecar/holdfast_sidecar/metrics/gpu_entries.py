"""Metrics of the GPUs; `gpu_signals.py` and `gpu_samples.py` fill them in."""

from __future__ import annotations

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
