"""Every metric there is: name, kind, unit, labels, help. The page, the reference and the checks of
dashboards and rules are made from this list.

Base units, timestamps instead of ages, and absence instead of 0 for what isn't known. Every series
of a job carries `run`; job-wide ones carry no identity of who exports them, so that a change of
leader makes no new series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JOB = ("run",)
NODE = ("run", "node")
RANK = ("run", "node", "rank")
GPU = ("run", "node", "gpu")
NIC = ("run", "node", "device")


@dataclass(frozen=True)
class Entry:
    """One metric. `unit` is "" for plain counts and states; a counter's name ends in _total."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    unit: str
    labels: tuple[str, ...]
    help: str
    leader_only: bool = False
    """Told by the leader alone, about the whole job."""


def _gauge(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    return Entry(f"holdfast_{name}", "gauge", unit, labels, text)


def _counter(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    return Entry(f"holdfast_{name}", "counter", unit, labels, text)


def _summary(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    return Entry(f"holdfast_{name}", "summary", unit, labels, text)


def _of_job(entry: Entry) -> Entry:
    return Entry(entry.name, entry.kind, entry.unit, entry.labels, entry.help, leader_only=True)


SIDECAR = (
    _gauge(
        "sidecar_info",
        "",
        (*NODE, "version", "mode"),
        "The sidecar of this node; always 1, what it is stands in the labels.",
    ),
    _gauge(
        "sidecar_start_timestamp_seconds",
        "seconds",
        NODE,
        "When the sidecar's process started, Unix time.",
    ),
    _counter("sidecar_ticks_total", "", NODE, "Rounds of read, judge, act, tell."),
    _counter("sidecar_tick_seconds_total", "seconds", NODE, "Time spent in those rounds."),
    _counter("sidecar_failed_ticks_total", "", NODE, "Rounds that ended in an error of our own."),
    _gauge("sidecar_last_tick_timestamp_seconds", "seconds", NODE, "When the newest round began."),
    _counter("sidecar_cpu_seconds_total", "seconds", NODE, "CPU time used by the sidecar."),
    _gauge(
        "sidecar_resident_memory_bytes", "bytes", NODE, "Resident memory of the sidecar's process."
    ),
    _gauge("probe_up", "", (*NODE, "probe"), "1 while the probe reads what it is there to read."),
    _counter("probe_failures_total", "", (*NODE, "probe"), "Readings of this probe that failed."),
    _gauge("probe_duration_seconds", "seconds", (*NODE, "probe"), "What its newest reading took."),
    _counter(
        "actions_total",
        "",
        (*NODE, "action", "outcome"),
        "Actions carried out on this node, by outcome (done, failed).",
    ),
)

COORDINATION = (
    _gauge("store_up", "", NODE, "1 while the coordination server answers this node."),
    _gauge("leader_epoch", "", NODE, "Epoch of the leader as this node knows it."),
    _gauge("node_is_leader", "", NODE, "1 on the node whose sidecar leads."),
    _of_job(
        _gauge(
            "leader_waiting",
            "",
            JOB,
            "1 while the leader waits before its next step; `holdfast status` says for what.",
        )
    ),
    _gauge("node_launcher_up", "", NODE, "1 while the launcher that this sidecar watches runs."),
    _of_job(
        _gauge(
            "node_last_heartbeat_timestamp_seconds",
            "seconds",
            NODE,
            "When the leader last saw this node's heartbeat move; it goes on for a dead node.",
        )
    ),
)

JOB_WIDE = (
    _of_job(_gauge("job_attempt", "", JOB, "Number of the attempt that the plan is about.")),
    _of_job(
        _gauge("job_state", "", (*JOB, "state"), "1 for the plan's state, 0 for all other states.")
    ),
    _of_job(_gauge("job_nodes_expected", "", JOB, "Nodes that the plan counts on.")),
    _of_job(_gauge("job_nodes_spare", "", JOB, "Nodes that wait outside the attempt.")),
    _of_job(_gauge("job_nodes_kept_out", "", JOB, "Nodes in quarantine, or left out by a person.")),
    _of_job(
        _gauge(
            "job_paused", "", JOB, "1 while somebody has paused the job: no fault is acted on then."
        )
    ),
    _of_job(_gauge("job_ranks_expected", "", JOB, "Ranks that the plan counts on.")),
    _of_job(
        _gauge("job_ranks_reporting", "", JOB, "Ranks of this attempt that sidecars see alive.")
    ),
    _of_job(_gauge("job_step", "", JOB, "Steps that every rank has completed.")),
    _of_job(_counter("job_restarts_total", "", JOB, "Restarts of this run.")),
    _of_job(_counter("job_incidents_total", "", (*JOB, "cause"), "Incidents so far, by cause.")),
    _of_job(
        _counter(
            "job_withheld_total",
            "",
            (*JOB, "why"),
            "Incidents about which nothing was done, by why (observe, suggest, paused,"
            " left_alone); they are among the others only if they were acted on later.",
        )
    ),
    _of_job(
        _counter(
            "job_lost_steps_total",
            "",
            (*JOB, "cause"),
            "Steps done again after a restart, by cause.",
        )
    ),
    _of_job(
        _gauge(
            "job_last_incident_timestamp_seconds", "seconds", JOB, "When the newest was detected."
        )
    ),
    _of_job(
        _gauge(
            "job_last_recovery_duration_seconds",
            "seconds",
            JOB,
            "From the newest recovered incident's onset to every rank stepping again.",
        )
    ),
)

CHECKPOINTS = (
    _of_job(
        _gauge(
            "checkpoint_last_durable_step",
            "",
            JOB,
            "Step of the newest checkpoint that is complete or good.",
        )
    ),
    _of_job(
        _gauge(
            "checkpoint_last_durable_timestamp_seconds",
            "seconds",
            JOB,
            "When that checkpoint was sealed.",
        )
    ),
    _of_job(_gauge("checkpoint_bytes", "bytes", JOB, "Size of its files.")),
    _of_job(_gauge("checkpoint_last_good_step", "", JOB, "Step of the newest good checkpoint.")),
    _of_job(
        _gauge(
            "checkpoint_last_good_timestamp_seconds",
            "seconds",
            JOB,
            "When that one was sealed (it was called good later).",
        )
    ),
    _of_job(_gauge("checkpoints", "", (*JOB, "verdict"), "Checkpoints in the ledger, by verdict.")),
    _of_job(_gauge("checkpoint_armed_step", "", JOB, "Step for which one is armed; else absent.")),
    _of_job(
        _counter(
            "checkpoint_saves_total",
            "",
            (*JOB, "result", "trigger"),
            "Coordinated checkpoints that ended since the leading sidecar started.",
        )
    ),
    _of_job(
        _summary(
            "checkpoint_duration_seconds",
            "seconds",
            (*JOB, "phase"),
            "What complete ones took: the slowest loop (blocked), writing and hashing (write).",
        )
    ),
    _of_job(
        _gauge(
            "checkpoint_interval_target_seconds",
            "seconds",
            JOB,
            "The interval aimed at; `holdfast checkpoint plan` says why.",
        )
    ),
    _of_job(
        _gauge(
            "checkpoint_assumed_mtbf_seconds",
            "seconds",
            JOB,
            "Mean time between failures of the job that it is worked out from.",
        )
    ),
)

SNAPSHOTS = (
    _of_job(
        _gauge(
            "snapshot_every_steps",
            "",
            JOB,
            "Steps from one snapshot to the next; 0: none are taken, `holdfast status` says why.",
        )
    ),
    _gauge(
        "snapshot_newest_step", "", NODE, "Newest step of which all ranks are known to have one."
    ),
    _gauge(
        "snapshot_newest_timestamp_seconds",
        "seconds",
        NODE,
        "When this node's ranks had sealed theirs.",
    ),
    _gauge("snapshot_slots", "", NODE, "Slots that each rank of this node has."),
    _gauge("snapshot_memory_bytes", "bytes", NODE, "Shared memory that slots and copies take."),
    _counter("snapshot_taken_total", "", RANK, "Snapshots that this rank sealed."),
    _counter("snapshot_skipped_total", "", RANK, "Snapshots that were due while no slot was free."),
    _counter(
        "snapshot_blocked_seconds_total", "seconds", RANK, "Time that they kept the rank's loop."
    ),
    _gauge("snapshot_last_blocked_seconds", "seconds", RANK, "What the newest one kept it."),
    _gauge("snapshot_first_blocked_seconds", "seconds", RANK, "What the first one kept it."),
)

RANKS = (
    _gauge("rank_step", "", RANK, "Steps completed."),
    _gauge("rank_phase_id", "", RANK, "What the rank is doing, as the page's phase number."),
    _gauge("rank_phase_since_timestamp_seconds", "seconds", RANK, "Since when, Unix time."),
    _gauge("rank_last_step_timestamp_seconds", "seconds", RANK, "When its newest step ended."),
    _gauge("rank_step_seconds", "seconds", RANK, "Median wall time of its latest steps."),
    _gauge("rank_own_seconds", "seconds", RANK, "The same without waiting for others (own time)."),
    _counter(
        "rank_phase_seconds_total",
        "seconds",
        (*RANK, "phase"),
        "Time of completed steps by phase, of this attempt, as far as this sidecar saw it.",
    ),
    _gauge("rank_loss", "", RANK, "The newest reported loss."),
    _counter("rank_nonfinite_losses_total", "", RANK, "Losses that were NaN or Inf."),
    _gauge("rank_gradient_norm", "", RANK, "The newest gradient norm."),
    _counter("rank_nonfinite_gradients_total", "", RANK, "Gradient norms that were NaN or Inf."),
    _gauge(
        "rank_scaler_skipped_steps",
        "",
        RANK,
        "Steps in a row that a loss scaler passed over, up to the newest.",
    ),
    _counter(
        "rank_spikes_total",
        "",
        RANK,
        "Spikes of its losses or gradient norms in this attempt, as far as this sidecar saw them.",
    ),
    _counter("rank_collectives_total", "", RANK, "Collectives entered from Python."),
    _counter("rank_optimizer_calls_total", "", RANK, "Calls of optimizers."),
    _counter("rank_hook_errors_total", "", RANK, "Errors of our own hooks inside the rank."),
    _counter("rank_cpu_seconds_total", "seconds", RANK, "CPU time of the rank's process."),
    _gauge("rank_up", "", RANK, "1 while the rank's process exists."),
    _gauge("rank_resumed_step", "", RANK, "Step that this attempt resumed from."),
    _gauge(
        "rank_checkpoint_seconds",
        "seconds",
        RANK,
        "What its newest checkpoint kept the rank from its steps.",
    ),
    _gauge("rank_checkpoint_bytes", "bytes", RANK, "What it wrote or copied for it."),
)

FINDINGS = (
    _gauge("findings", "", (*NODE, "kind"), "Findings that stand now, by kind."),
    _gauge(
        "finding_acts", "", (*NODE, "kind"), "1 when one of this kind is sure enough to act on."
    ),
    _counter("findings_total", "", (*NODE, "kind"), "Findings made since the sidecar started."),
)

HOST = (
    _counter("host_cpu_seconds_total", "seconds", (*NODE, "mode"), "CPU time of the host by mode."),
    _gauge("host_cpus", "", NODE, "CPUs that this sidecar may run on."),
    _gauge("host_load1", "", NODE, "Load average over one minute."),
    _gauge("host_memory_size_bytes", "bytes", NODE, "Memory."),
    _gauge(
        "host_memory_available_bytes", "bytes", NODE, "Memory that can be had without swapping."
    ),
    _gauge("host_swap_used_bytes", "bytes", NODE, "Swap in use."),
    _gauge("host_boot_timestamp_seconds", "seconds", NODE, "When the host was started."),
    _counter(
        "host_pressure_waiting_seconds_total",
        "seconds",
        (*NODE, "resource"),
        "Time in which some task waited for this resource (PSI some).",
    ),
    _counter(
        "host_pressure_stalled_seconds_total",
        "seconds",
        (*NODE, "resource"),
        "Time in which all tasks waited for it (PSI full).",
    ),
    _counter("host_oom_kills_total", "", NODE, "Processes that the kernel killed for memory."),
    _gauge("host_room_size_bytes", "bytes", (*NODE, "room"), "Size of the file system of a room."),
    _gauge("host_room_available_bytes", "bytes", (*NODE, "room"), "What may still be written."),
)

NETWORK = (
    _gauge("net_up", "", NIC, "1 while the interface has carrier."),
    _gauge("net_speed_bytes_per_second", "bytes", NIC, "Speed of the link."),
    _counter("net_carrier_losses_total", "", NIC, "How often carrier was lost."),
    _counter("net_receive_bytes_total", "bytes", NIC, "Bytes received."),
    _counter("net_transmit_bytes_total", "bytes", NIC, "Bytes sent."),
    _counter("net_receive_errors_total", "", NIC, "Frames received in error."),
    _counter("net_transmit_errors_total", "", NIC, "Frames that could not be sent."),
    _counter("net_receive_drops_total", "", NIC, "Frames received and dropped."),
    _counter("net_transmit_drops_total", "", NIC, "Frames dropped before sending."),
)

GPUS = (
    _gauge(
        "gpu_info",
        "",
        (*GPU, "uuid", "model", "pci", "driver"),
        "A GPU; always 1, its identity stands in the labels.",
    ),
    _gauge("node_gpus", "", NODE, "GPUs that NVML lists; absent without a driver."),
    _gauge(
        "gpu_busy_ratio", "ratio", GPU, "Share of time a kernel ran; 1 in a spinning hang, too."
    ),
    _gauge("gpu_memory_size_bytes", "bytes", GPU, "Memory."),
    _gauge("gpu_memory_used_bytes", "bytes", GPU, "Memory in use."),
    _gauge("gpu_temperature_celsius", "celsius", GPU, "Temperature of the GPU."),
    _gauge("gpu_power_watts", "watts", GPU, "Power drawn."),
    _gauge("gpu_power_limit_watts", "watts", GPU, "Enforced power limit."),
    _gauge("gpu_sm_clock_hertz", "hertz", GPU, "Clock of the multiprocessors."),
    _gauge("gpu_processes", "", GPU, "Processes that compute on it."),
    _counter(
        "gpu_ecc_errors_total", "", (*GPU, "error"), "ECC errors since the driver was loaded."
    ),
)

PEER_COPIES = (
    _of_job(
        _gauge(
            "peer_copied_step",
            "",
            JOB,
            "Newest step of which every rank's snapshot is on another node; absent: there is none.",
        )
    ),
    _of_job(
        _gauge(
            "peer_lag_steps",
            "",
            JOB,
            "Steps that the loss of a node would cost: from that step to the furthest rank.",
        )
    ),
    _of_job(
        _gauge(
            "peer_lag_seconds", "seconds", JOB, "The same as time, at the pace of the slowest rank."
        )
    ),
    _counter("peer_copies_total", "", NODE, "Copies of other nodes' snapshots brought here."),
    _counter("peer_received_bytes_total", "bytes", NODE, "Their bytes."),
    _counter(
        "peer_receive_seconds_total", "seconds", NODE, "What they took, all connections added up."
    ),
    _counter("peer_sent_bytes_total", "bytes", NODE, "Bytes of snapshots sent to other nodes."),
    _counter("peer_failures_total", "", NODE, "Copies that broke off, or could not be begun."),
    _counter(
        "peer_refused_callers_total",
        "",
        NODE,
        "Callers without the attempt's key, too slow, too many, or speaking something else.",
    ),
)

CATALOGUE: tuple[Entry, ...] = (
    *SIDECAR,
    *COORDINATION,
    *JOB_WIDE,
    *CHECKPOINTS,
    *PEER_COPIES,
    *SNAPSHOTS,
    *RANKS,
    *FINDINGS,
    *HOST,
    *NETWORK,
    *GPUS,
)
