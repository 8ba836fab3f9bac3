"""Metrics of who is slow, what it costs, how well the job does; `slowness_samples.py` fills them
in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import JOB, RANK, Entry, counter, gauge, of_job

SLOWNESS: tuple[Entry, ...] = (
    of_job(
        gauge(
            "job_slow_ranks",
            "",
            JOB,
            "Ranks that are slower than they should be now; `holdfast explain --slow` says why.",
        )
    ),
    of_job(
        gauge(
            "rank_slowdown_ratio",
            "ratio",
            (*RANK, "cause"),
            "By what part of its peers' time this rank takes longer, only while it is slow: 0.3 is"
            " 30 % slower.",
        )
    ),
    of_job(
        gauge(
            "job_slowdown_gain_ratio",
            "ratio",
            JOB,
            "By how much the job would be faster without the one rank that slows it most; absent"
            " while none does.",
        )
    ),
    of_job(
        counter(
            "job_slowed_seconds_total",
            "seconds",
            (*JOB, "cause"),
            "Time of the whole job that slowness cost so far, by its cause.",
        )
    ),
    of_job(
        counter(
            "job_watched_seconds_total",
            "seconds",
            JOB,
            "Time of the steps that were judged for it.",
        )
    ),
)

EFFICIENCY: tuple[Entry, ...] = (
    of_job(
        gauge(
            "job_mfu_ratio",
            "ratio",
            JOB,
            "Model FLOPs utilisation: of what the devices could do, what the model needed.",
        )
    ),
    of_job(
        gauge(
            "job_hfu_ratio",
            "ratio",
            JOB,
            "The same with what activation checkpointing computes again.",
        )
    ),
    of_job(gauge("job_tokens_per_second", "", JOB, "Tokens that all ranks train on, a second.")),
    of_job(
        gauge(
            "job_communication_share_ratio",
            "ratio",
            JOB,
            "Of a step: exposed communication, on the median rank.",
        )
    ),
    of_job(gauge("job_data_share_ratio", "ratio", JOB, "Of a step: waiting for batches.")),
    of_job(
        gauge(
            "job_pipeline_bubble_ratio",
            "ratio",
            JOB,
            "Of a step: pipeline stages that had nothing to do.",
        )
    ),
    of_job(
        gauge(
            "job_pace_ratio",
            "ratio",
            JOB,
            "Throughput of the newest steps against that of the attempt's first ones after its"
            " warm-up; 1: as fast. It says nothing of more or fewer ranks.",
        )
    ),
)

MEMORY: tuple[Entry, ...] = (
    gauge(
        "rank_device_memory_bytes",
        "bytes",
        (*RANK, "kind"),
        "Memory of the rank's device: allocated (tensors), reserved (by torch's allocator), peak"
        " (the most reserved in this attempt), total. Absent without a device.",
    ),
    counter(
        "rank_device_memory_retries_total",
        "",
        RANK,
        "Times the allocator had to give back what it kept before it found room; absent before the"
        " first.",
    ),
)
