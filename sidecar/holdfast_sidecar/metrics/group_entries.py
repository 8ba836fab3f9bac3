"""Metrics of what ranks exchange in which process group; `group_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import RANK, Entry, counter

GROUP = (*RANK, "group")

GROUPS: tuple[Entry, ...] = (
    counter(
        "rank_group_calls_total",
        "",
        GROUP,
        "Collectives and messages that the rank began in this process group, one of its first four;"
        " absent while it is in none.",
    ),
    counter(
        "rank_group_bytes_total",
        "bytes",
        GROUP,
        "Bytes of the larger side of each, as far as they were seen: what is reduced, gathered,"
        " scattered. By the time that they take it is the algorithm bandwidth.",
    ),
    counter(
        "rank_group_wait_seconds_total",
        "seconds",
        GROUP,
        "Time that the rank stood waiting in them, of steps that were measured in parts; what runs"
        " behind the computing is not in it.",
    ),
)
