"""Every metric there is: name, kind, unit, labels, help. The page, the reference and the checks of
dashboards and rules are made from this list.

Base units, timestamps instead of ages, and absence instead of 0 for what isn't known. Every series
of a job carries `run`; job-wide ones carry no identity of who exports them, so that a change of
leader makes no new series.
"""

from __future__ import annotations

from holdfast_sidecar.components.gpu.metrics import ENERGY, GPUS, NVML
from holdfast_sidecar.components.health_check.component import GATE
from holdfast_sidecar.components.host.metrics import HOST
from holdfast_sidecar.components.network.metrics import FABRIC, NETWORK
from holdfast_sidecar.components.xid.checks import XIDS
from holdfast_sidecar.export.metrics import BLAMES, GROUPS
from holdfast_sidecar.performance.metrics import EFFICIENCY, GOODPUT, MEMORY, RELIABILITY, SLOWNESS
from holdfast_sidecar.records.metric import (
    JOB,
    NODE,
    RANK,
    MetricSpec,
    counter,
    gauge,
    of_job,
    summary,
)

SIDECAR = (
    gauge(
        "sidecar_info",
        "",
        (*NODE, "version", "revision", "mode"),
        "The sidecar of this node; always 1, what it is stands in the labels (the revision where it"
        " was installed from a repository).",
    ),
    gauge(
        "sidecar_start_timestamp_seconds",
        "seconds",
        NODE,
        "When the sidecar's process started, Unix time.",
    ),
    counter("sidecar_ticks_total", "", NODE, "Rounds of read, judge, act, tell."),
    counter("sidecar_tick_seconds_total", "seconds", NODE, "Time spent in those rounds."),
    counter("sidecar_failed_ticks_total", "", NODE, "Rounds that ended in an error of our own."),
    gauge("sidecar_last_tick_timestamp_seconds", "seconds", NODE, "When the newest round began."),
    counter("sidecar_cpu_seconds_total", "seconds", NODE, "CPU time used by the sidecar."),
    gauge(
        "sidecar_resident_memory_bytes", "bytes", NODE, "Resident memory of the sidecar's process."
    ),
    gauge("probe_up", "", (*NODE, "probe"), "1 while the probe reads what it is there to read."),
    counter("probe_failures_total", "", (*NODE, "probe"), "Readings of this probe that failed."),
    gauge("probe_duration_seconds", "seconds", (*NODE, "probe"), "What its newest reading took."),
    counter(
        "actions_total",
        "",
        (*NODE, "action", "outcome"),
        "Actions carried out on this node, by outcome (done, failed).",
    ),
)

COORDINATION = (
    gauge("store_up", "", NODE, "1 while the coordination server answers this node."),
    gauge("leader_epoch", "", NODE, "Epoch of the leader as this node knows it."),
    gauge("node_is_leader", "", NODE, "1 on the node whose sidecar leads."),
    of_job(
        gauge(
            "leader_waiting",
            "",
            JOB,
            "1 while the leader waits before its next step; `holdfast status` says for what.",
        )
    ),
    gauge("node_launcher_up", "", NODE, "1 while the launcher that this sidecar watches runs."),
    gauge(
        "node_launcher_told_to_end",
        "",
        NODE,
        "1 once a signal told this node's launcher to end (Ctrl-C, a scheduler) and it leaves.",
    ),
    of_job(
        gauge(
            "node_last_heartbeat_timestamp_seconds",
            "seconds",
            NODE,
            "When the leader last saw this node's heartbeat move; it goes on for a dead node.",
        )
    ),
)

JOB_WIDE = (
    of_job(gauge("job_attempt", "", JOB, "Number of the attempt that the plan is about.")),
    of_job(
        gauge("job_state", "", (*JOB, "state"), "1 for the plan's state, 0 for all other states.")
    ),
    of_job(gauge("job_nodes_expected", "", JOB, "Nodes that the plan counts on.")),
    of_job(gauge("job_nodes_spare", "", JOB, "Nodes that wait outside the attempt.")),
    of_job(gauge("job_nodes_kept_out", "", JOB, "Nodes in quarantine, or left out by a person.")),
    of_job(
        gauge(
            "job_paused", "", JOB, "1 while somebody has paused the job: no fault is acted on then."
        )
    ),
    of_job(gauge("job_ranks_expected", "", JOB, "Ranks that the plan counts on.")),
    of_job(gauge("job_ranks_reporting", "", JOB, "Ranks of this attempt that sidecars see alive.")),
    of_job(gauge("job_step", "", JOB, "Steps that every rank has completed.")),
    of_job(counter("job_restarts_total", "", JOB, "Restarts of this run.")),
    of_job(counter("job_incidents_total", "", (*JOB, "cause"), "Incidents so far, by cause.")),
    of_job(
        counter(
            "job_withheld_total",
            "",
            (*JOB, "why"),
            "Incidents about which nothing was done, by why (observe, suggest, paused,"
            " left_alone); they are among the others only if they were acted on later.",
        )
    ),
    of_job(
        counter(
            "job_lost_steps_total",
            "",
            (*JOB, "cause"),
            "Steps done again after a restart, by cause.",
        )
    ),
    of_job(
        gauge(
            "job_last_incident_timestamp_seconds", "seconds", JOB, "When the newest was detected."
        )
    ),
    of_job(
        gauge(
            "job_last_recovery_duration_seconds",
            "seconds",
            JOB,
            "From the newest recovered incident's onset to every rank stepping again.",
        )
    ),
)

CHECKPOINTS = (
    of_job(
        gauge(
            "checkpoint_last_durable_step",
            "",
            JOB,
            "Step of the newest checkpoint that is complete or good.",
        )
    ),
    of_job(
        gauge(
            "checkpoint_last_durable_timestamp_seconds",
            "seconds",
            JOB,
            "When that checkpoint was sealed.",
        )
    ),
    of_job(gauge("checkpoint_bytes", "bytes", JOB, "Size of its files.")),
    of_job(gauge("checkpoint_last_good_step", "", JOB, "Step of the newest good checkpoint.")),
    of_job(
        gauge(
            "checkpoint_last_good_timestamp_seconds",
            "seconds",
            JOB,
            "When that one was sealed (it was called good later).",
        )
    ),
    of_job(gauge("checkpoints", "", (*JOB, "verdict"), "Checkpoints in the ledger, by verdict.")),
    of_job(gauge("checkpoint_armed_step", "", JOB, "Step for which one is armed; else absent.")),
    of_job(
        counter(
            "checkpoint_saves_total",
            "",
            (*JOB, "result", "trigger"),
            "Coordinated checkpoints of the run that ended, whoever led then.",
        )
    ),
    of_job(
        summary(
            "checkpoint_duration_seconds",
            "seconds",
            (*JOB, "phase"),
            "What complete ones took: the slowest loop (blocked), writing and hashing (write).",
        )
    ),
    of_job(
        gauge(
            "checkpoint_interval_target_seconds",
            "seconds",
            JOB,
            "The interval aimed at; `holdfast checkpoint plan` says why.",
        )
    ),
    of_job(
        gauge(
            "checkpoint_assumed_mtbf_seconds",
            "seconds",
            JOB,
            "Mean time between failures of the job that it is worked out from.",
        )
    ),
)

SNAPSHOTS = (
    of_job(
        gauge(
            "snapshot_every_steps",
            "",
            JOB,
            "Steps from one snapshot to the next; 0: none are taken, `holdfast status` says why.",
        )
    ),
    gauge(
        "snapshot_newest_step", "", NODE, "Newest step of which all ranks are known to have one."
    ),
    gauge(
        "snapshot_newest_timestamp_seconds",
        "seconds",
        NODE,
        "When this node's ranks had sealed theirs.",
    ),
    gauge("snapshot_slots", "", NODE, "Slots that each rank of this node has."),
    gauge("snapshot_memory_bytes", "bytes", NODE, "Shared memory that slots and copies take."),
    counter("snapshot_taken_total", "", RANK, "Snapshots that this rank sealed."),
    counter("snapshot_skipped_total", "", RANK, "Snapshots that were due while no slot was free."),
    counter(
        "snapshot_blocked_seconds_total", "seconds", RANK, "Time that they kept the rank's loop."
    ),
    gauge("snapshot_last_blocked_seconds", "seconds", RANK, "What the newest one kept it."),
    gauge("snapshot_first_blocked_seconds", "seconds", RANK, "What the first one kept it."),
)

RANKS = (
    gauge("rank_step", "", RANK, "Steps completed."),
    gauge("rank_phase_id", "", RANK, "What the rank is doing, as the page's phase number."),
    gauge(
        "rank_busy",
        "",
        RANK,
        "1 while its script says that it is busy (`holdfast.busy`); absent before it first does.",
    ),
    gauge("rank_phase_since_timestamp_seconds", "seconds", RANK, "Since when, Unix time."),
    gauge("rank_last_step_timestamp_seconds", "seconds", RANK, "When its newest step ended."),
    gauge("rank_step_seconds", "seconds", RANK, "Median wall time of its latest steps."),
    gauge("rank_own_seconds", "seconds", RANK, "The same without waiting for others (own time)."),
    counter(
        "rank_phase_seconds_total",
        "seconds",
        (*RANK, "phase"),
        "Time of completed steps by phase, of this attempt, as far as this sidecar saw it; data,"
        " saving, evaluating, compiling and transfer are absent before they first occur, and so is"
        " unsplit: short steps of which only the whole is measured, so that shares are of the"
        " others.",
    ),
    counter(
        "rank_gc_seconds_total",
        "seconds",
        RANK,
        "Of these: Python's garbage collector, whichever part it struck.",
    ),
    gauge("rank_loss", "", RANK, "The newest reported loss."),
    counter("rank_nonfinite_losses_total", "", RANK, "Losses that were NaN or Inf."),
    gauge("rank_gradient_norm", "", RANK, "The newest gradient norm."),
    counter("rank_nonfinite_gradients_total", "", RANK, "Gradient norms that were NaN or Inf."),
    gauge(
        "rank_scaler_skipped_steps",
        "",
        RANK,
        "Steps in a row that a loss scaler passed over, up to the newest.",
    ),
    counter(
        "rank_spikes_total",
        "",
        RANK,
        "Spikes of its losses or gradient norms in this attempt, as far as this sidecar saw them.",
    ),
    counter("rank_collectives_total", "", RANK, "Collectives entered from Python."),
    counter("rank_optimizer_calls_total", "", RANK, "Calls of optimizers."),
    counter("rank_hook_errors_total", "", RANK, "Errors of our own hooks inside the rank."),
    counter("rank_cpu_seconds_total", "seconds", RANK, "CPU time of the rank's process."),
    gauge(
        "rank_up",
        "",
        RANK,
        "1 while the rank's process exists. It and all of a rank is absent on a node that a later"
        " attempt runs without.",
    ),
    gauge("rank_resumed_step", "", RANK, "Step that this attempt resumed from."),
    gauge(
        "rank_checkpoint_seconds",
        "seconds",
        RANK,
        "What its newest checkpoint kept the rank from its steps.",
    ),
    gauge("rank_checkpoint_bytes", "bytes", RANK, "What it wrote or copied for it."),
)

FINDINGS = (
    gauge(
        "findings_active",
        "",
        (*NODE, "kind"),
        "Findings that stand now, by kind; absent for others.",
    ),
    gauge("finding_acts", "", (*NODE, "kind"), "1 when one of these is sure enough to act on."),
    counter("findings_total", "", (*NODE, "kind"), "Findings made since the sidecar started."),
)

PEER_COPIES = (
    of_job(
        gauge(
            "peer_copied_step",
            "",
            JOB,
            "Newest step of which every rank's snapshot is on another node; absent: there is none.",
        )
    ),
    of_job(
        gauge(
            "peer_lag_steps",
            "",
            JOB,
            "Steps that the loss of a node would cost: from that step to the furthest rank.",
        )
    ),
    of_job(
        gauge(
            "peer_lag_seconds", "seconds", JOB, "The same as time, at the pace of the slowest rank."
        )
    ),
    counter("peer_copies_total", "", NODE, "Copies of other nodes' snapshots brought here."),
    counter("peer_received_bytes_total", "bytes", NODE, "Their bytes."),
    counter(
        "peer_receive_seconds_total", "seconds", NODE, "What they took, all connections added up."
    ),
    counter("peer_sent_bytes_total", "bytes", NODE, "Bytes of snapshots sent to other nodes."),
    counter("peer_failures_total", "", NODE, "Copies that broke off, or could not be begun."),
    counter(
        "peer_refused_callers_total",
        "",
        NODE,
        "Callers without the attempt's key, too slow, too many, or speaking something else.",
    ),
)

CATALOGUE: tuple[MetricSpec, ...] = (
    *SIDECAR,
    *COORDINATION,
    *JOB_WIDE,
    *GOODPUT,
    *RELIABILITY,
    *SLOWNESS,
    *EFFICIENCY,
    *BLAMES,
    *CHECKPOINTS,
    *PEER_COPIES,
    *SNAPSHOTS,
    *RANKS,
    *MEMORY,
    *GROUPS,
    *FINDINGS,
    *GATE,
    *HOST,
    *NETWORK,
    *FABRIC,
    *GPUS,
    *NVML,
    *ENERGY,
    *XIDS,
)
