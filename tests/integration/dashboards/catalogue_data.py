"""Twenty minutes of every series that the catalogue has, made up: node a is well, node b is not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.records.metric import MetricSpec

STEP_S = 15
MINUTES = 20
Labels = Mapping[str, str]

VALUES: dict[str, tuple[str, ...]] = {
    "run": ("job",),
    "node": ("a", "b"),
    "rank": ("0", "1", "2", "3"),
    "gpu": ("0", "1"),
    "state": ("running", "evidence", "ended", "done", "stopped"),
    "category": ("productive", "restart", "data_wait", "queued"),
    "phase": ("data", "forward", "communicating", "detect", "restore", "write"),
    "cause": ("crash", "node_lost"),
    "error": ("corrected", "uncorrected"),
    "scope": ("volatile", "aggregate"),
    "reason": ("hardware_thermal", "power_cap"),
    "result": ("complete", "void"),
    "verdict": ("complete", "good"),
    "resource": ("memory", "io"),
    "room": ("shm", "checkpoints"),
    "probe": ("host", "gpu"),
}
"""Of other labels one value, `x`."""

ILL = {"a": 1.0, "b": 0.0}

FIXED: dict[str, float] = {
    "holdfast_job_ranks_expected": 4,
    "holdfast_job_ranks_reporting": 3,
    "holdfast_gpu_nvlinks_expected": 4,
    "holdfast_gpu_nvlinks_active": 3,
    "holdfast_node_gpus_expected": 2,
    "holdfast_node_gpus": 1,
    "holdfast_rank_step_seconds": 0.5,
    "holdfast_nvml_stuck_children": 1,
    "holdfast_checkpoint_interval_target_seconds": 600,
    "holdfast_job_gpus": 4,
}
"""Where a sum or a share needs values that fit each other."""


def openmetrics(end_unix_s: int) -> Iterator[str]:
    """Lines for `promtool tsdb create-blocks-from openmetrics`, in order of series and time."""
    begin = end_unix_s - 60 * MINUTES
    for name, labels, entry in series():
        written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        for index, at in enumerate(range(begin, end_unix_s + 1, STEP_S)):
            yield f"{name}{{{written}}} {_value(name, labels, entry, index, at)} {at}"
    yield "# EOF"


def series() -> Iterator[tuple[str, Labels, MetricSpec | None]]:
    """Every one, with what Prometheus' own scrapes and rules add."""
    for entry in CATALOGUE:
        for labels in _labels(entry):
            for end in ("_count", "_sum") if entry.kind == "summary" else ("",):
                yield entry.name + end, labels, entry
    for node in VALUES["node"]:
        target = {"job": "holdfast-sidecar", "instance": f"{node}:9", "run": "job", "node": node}
        for name in ("up", "scrape_samples_scraped", "scrape_duration_seconds"):
            yield name, target, None
    firing = {"alertname": "HoldfastNodeLost", "alertstate": "firing", "severity": "critical"}
    yield "ALERTS", firing | {"run": "job", "node": "b"}, None


def _labels(entry: MetricSpec) -> Iterator[Labels]:
    ranges = [VALUES.get(label, ("x",)) for label in entry.labels]
    for values in itertools.product(*ranges):
        labels = dict(zip(entry.labels, values, strict=True)) | {"job": "holdfast-sidecar"}
        if {"node", "rank"} <= set(labels) and (labels["node"] == "a") != (labels["rank"] < "2"):
            continue
        yield labels if entry.leader_only else labels | {"instance": f"{labels['node']}:9"}


def _value(name: str, labels: Labels, entry: MetricSpec | None, index: int, at: int) -> float:
    if entry is not None and entry.kind != "gauge":
        return index * STEP_S * (0.9 if labels.get("category") == "productive" else 0.02)
    if name in FIXED:
        return FIXED[name]
    if name == "holdfast_job_state":
        return float(labels["state"] == "running")
    if name.endswith("_timestamp_seconds"):
        return at - (20.0 if labels.get("node") != "b" else 500.0)
    if name in ("holdfast_checkpoint_last_durable_step", "holdfast_rank_step"):
        return float(index // 8 + int(labels.get("rank", "0")))
    if name.endswith("_id"):
        return 1.0 + int(labels.get("gpu", labels.get("rank", "0")))
    if name == "holdfast_rank_own_seconds":
        return 0.1 * (1 + int(labels["rank"]))
    if name.endswith(("_info", "_size_bytes", "_max")) or entry is None:
        return 1.0
    if name.endswith("_bytes") or "ratio" in name:
        return 0.4
    return ILL[labels.get("node", "a")]
