"""What the wall clock and the GPUs' time went to, as expressions that several dashboards use."""

from __future__ import annotations

from builders.query import Query, over_time
from builders.selecting import PER_RUN, gained, gauge, of_run, rate

UNPRODUCTIVE = 'category!~"productive|queued"'
"""A queue is the cluster's, no run's, loss."""


def shown_goodput() -> str:
    """Of the time shown: training that counted, of all time since the first node was there."""
    productive = gained("holdfast_job_time_seconds_total", more='category="productive"')
    lost = gained("holdfast_job_lost_work_seconds_total")
    return f"clamp_min({productive} - {lost}, 0) / ({_all()} > 0)"


def shares(metric: str) -> list[Query]:
    """What each category took, a second; training first, as the ground of the picture."""
    return [
        over_time(rate(metric, "by (category)", matcher), "{{category}}")
        for matcher in ('category="productive"', 'category!="productive"')
    ]


def gpu_hours_lost() -> str:
    """Of each run, in the time shown: time that was no training, and training done again."""
    idle = gained("holdfast_job_gpu_time_seconds_total", more=UNPRODUCTIVE)
    again = gained("holdfast_job_lost_work_gpu_seconds_total")
    return f"({idle} + {again}) / 3600"


def checkpoint_lateness() -> str:
    """Age of the newest durable checkpoint in intervals that were aimed at."""
    sealed = gauge("holdfast_checkpoint_last_durable_timestamp_seconds")
    target = gauge("holdfast_checkpoint_interval_target_seconds")
    return f"(time() - {sealed}) / {target}"


def ranks_missing() -> str:
    """Ranks that the plan counts on and no sidecar sees alive."""
    expected, seen = gauge("holdfast_job_ranks_expected"), gauge("holdfast_job_ranks_reporting")
    return f"clamp_min({expected} - {seen}, 0)"


def open_incidents() -> str:
    """Of each run; 0 for one that has none, nothing for one that nobody tells of."""
    known = gauge("holdfast_job_attempt")
    return f"count {PER_RUN} ({of_run('holdfast_job_open_incident_info')}) or 0 * {known}"


def _all() -> str:
    return gained("holdfast_job_time_seconds_total", more='category!="queued"')
