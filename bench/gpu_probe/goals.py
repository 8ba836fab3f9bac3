"""What the samples of `bench gpu-probe` come to. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import NOT_RUN, Figure, at_most, middle
from bench.gpu_probe.names import POLL, SIGNALS
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.nvml.signals import ROWS, name
from holdfast_sidecar.components.gpu.readings import Signal

MOST_CALL_MS = 20.0
"""No call that the sidecar makes each second may take what nvmlDeviceGetPcieThroughput takes."""
MOST_POLL_CPU_MS = 3.0
"""For 8 GPUs: with one poll a second that leaves two thirds of 1 % of a core to all else."""
GPUS = 8
MILLI = 1e3
MICRO = 1e6


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """A line per signal and way with its value, then what a poll costs."""
    samples = [sample for sample in samples if "not_run" not in sample]
    by_way = {
        (sample["signal"], sample["way"]): sample for sample in samples if sample["row"] == SIGNALS
    }
    told = [_line(signal, way, by_way.get((signal, way))) for signal, way in asked()]
    polls = [sample for sample in samples if sample["row"] == POLL]
    return [*told, _slowest(list(by_way.values())), *_polls(polls)]


def asked() -> list[tuple[str, str]]:
    """Every signal with every way of asking it."""
    return [
        *((row.signal.value, name(way)) for row in ROWS for way in row.ways),
        *((s.value, f"GPM metric {metric}, with all the others") for s, metric in METRICS.items()),
        (Signal.PROCESSES.value, "nvmlDeviceGetComputeRunningProcesses_v3"),
        ("modes", "nvmlDeviceGet{MigMode,EccMode,PersistenceMode}"),
    ]


def _line(signal: str, way: str, sample: Sample | None) -> Figure:
    if sample is None:
        return Figure(f"{signal}, {way}", None, "us", met=NOT_RUN)
    refused = sample["refused"].removeprefix(f"{way}: ")
    value = refused if sample["value"] is None else f"{sample['value']:g}"
    took_us = [took_s * MICRO for took_s in sample["took_s"]]
    tail = f", p99 {percentile(took_us, 99):.0f} us" if took_us else ""
    return middle(f"{signal}, {way}: {value or 'told'}{tail}", "us", took_us)


def _slowest(samples: Sequence[Sample]) -> Figure:
    tails = [percentile(one["took_s"], 99) * MILLI for one in samples if one["took_s"]]
    limit = "p99 of the slowest call"
    return at_most(limit, "ms", max(tails, default=None), MOST_CALL_MS, tails)


def _polls(polls: Sequence[Sample]) -> list[Figure]:
    later = [one for one in polls if one["number"] > 0]
    cpu_ms = [one["cpu_s"] * MILLI for one in later]
    took_ms = [one["took_s"] * MILLI for one in later]
    per_eight = [ms * GPUS / max(one["gpus"], 1) for ms, one in zip(cpu_ms, later, strict=True)]
    mean = sum(per_eight) / len(per_eight) if per_eight else None
    title = f"processor time of a poll, mean, for {GPUS} GPUs"
    return [
        middle("poll of all GPUs", "ms", took_ms),
        middle("first poll of all GPUs", "ms", [p["took_s"] * MILLI for p in polls[:1]]),
        at_most(title, "ms", mean, MOST_POLL_CPU_MS, per_eight),
    ]


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: the least of the values that so many percent don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]
