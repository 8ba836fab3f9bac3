"""Metrics of the health gate; `gate_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NODE, gauge

GATE = (
    gauge("node_fit", "", NODE, "1: the health gate finds this node fit for an attempt."),
    gauge(
        "gate_check_passed",
        "",
        (*NODE, "check"),
        "1: this check of the gate was passed; absent while it can't be made.",
    ),
)
