"""Metrics of where a run's time went and what failures cost; `goodput_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import JOB, NODE, Entry, counter, gauge, of_job, summary

GOODPUT: tuple[Entry, ...] = (
    of_job(
        counter(
            "job_time_seconds_total",
            "seconds",
            (*JOB, "category"),
            "Wall-clock time of the run by what it was spent on: one category at a time, so that"
            " together they are the time since it began. Steps are put down when they end.",
        )
    ),
    of_job(
        counter(
            "job_gpu_time_seconds_total",
            "seconds",
            (*JOB, "category"),
            "The same, times the GPUs (ranks where there are none) that the plan counted on then.",
        )
    ),
    of_job(
        counter(
            "job_lost_work_seconds_total",
            "seconds",
            (*JOB, "cause", "node"),
            "Training that had to be done again, by cause of the restart and by the machine that is"
            " to blame (empty: none is). It stands in the time above as productive.",
        )
    ),
    of_job(
        counter(
            "job_lost_work_gpu_seconds_total",
            "seconds",
            (*JOB, "cause", "node"),
            "The same, times GPUs.",
        )
    ),
    of_job(
        gauge(
            "job_goodput_ratio",
            "ratio",
            JOB,
            "Of the run's time so far, waiting for nodes left out: productive, and not lost since.",
        )
    ),
    of_job(
        gauge(
            "job_ettr_ratio",
            "ratio",
            JOB,
            "The same with all time in which it trained, however well (effective training time).",
        )
    ),
    of_job(
        gauge(
            "job_start_timestamp_seconds",
            "seconds",
            JOB,
            "Since when its time is counted, Unix time.",
        )
    ),
    of_job(gauge("job_gpus", "", JOB, "GPUs, or ranks, that time is weighted by now.")),
    of_job(
        gauge(
            "job_gpu_hour_price",
            "",
            (*JOB, "currency"),
            "What an hour of a GPU costs, where `[cost] per_gpu_hour` says so.",
        )
    ),
)

RELIABILITY: tuple[Entry, ...] = (
    of_job(
        summary(
            "job_recovery_phase_seconds",
            "seconds",
            (*JOB, "phase"),
            "Restarts that are over, by their parts: detect, drain, rendezvous, restore,"
            " first_step.",
        )
    ),
    of_job(
        gauge(
            "job_mtbf_seconds",
            "seconds",
            JOB,
            "Time of the run for each failure so far; absent before the first.",
        )
    ),
    of_job(
        gauge(
            "job_open_incident_info",
            "",
            (*JOB, "node", "cause", "incident", "decided"),
            "1 for every incident that is not over; without a node where no machine is blamed.",
        )
    ),
    of_job(
        gauge(
            "job_nodes_wanted",
            "",
            JOB,
            "Nodes of the run's largest attempt so far: with fewer it has shrunk.",
        )
    ),
    of_job(
        gauge(
            "node_drained",
            "",
            NODE,
            "1 while a person keeps this node outside and no ranks run there: what the run lacks by"
            " it is meant so; absent for others.",
        )
    ),
    of_job(
        gauge(
            "job_restart_budget_remaining",
            "",
            JOB,
            "Restarts that are left before the job is stopped, of the cause that has fewest.",
        )
    ),
    of_job(gauge("job_exit_code", "", JOB, "How the run ended; absent while it goes on.")),
)
