"""Metrics of who is blamed for failures; `blame_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NODE, counter, gauge, of_job

BLAMES = (
    of_job(
        gauge(
            "node_lemon_score",
            "",
            NODE,
            "Failures that are held against a node, older ones counting less; at"
            " policy.blames_limit (rounded) it is kept outside.",
        )
    ),
    of_job(
        counter(
            "node_blamed_total",
            "",
            (*NODE, "cause"),
            "Failures that this node's machine was blamed for, by cause; absent for a node that"
            " never was.",
        )
    ),
)
