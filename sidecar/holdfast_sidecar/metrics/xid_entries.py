"""Metrics of what the NVIDIA driver said of faults; `xid_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import GPU, NODE, counter, gauge

XIDS = (
    counter(
        "gpu_xid_errors_total",
        "",
        (*GPU, "xid"),
        "XIDs of a GPU since the sidecar started, bursts counted once; only those that occurred.",
    ),
    gauge(
        "gpu_xid_last_timestamp_seconds",
        "seconds",
        (*GPU, "xid", "remedy"),
        "When it last occurred, Unix time, and what was judged to be needed.",
    ),
    gauge(
        "gpu_xid_events_last_24h",
        "",
        (*GPU, "xid"),
        "How often it occurred within 24 h, whether or not this sidecar ran.",
    ),
    counter(
        "nvswitch_sxid_errors_total",
        "",
        (*NODE, "sxid"),
        "SXids of the node's NVSwitches since the sidecar started; only those that occurred.",
    ),
)
