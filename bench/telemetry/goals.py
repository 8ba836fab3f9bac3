"""All figures of the telemetry benchmark, in the order of docs/benchmarks.md. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.spread import percentile
from bench.figures import Figure, at_least, at_most, exactly, middle
from bench.telemetry.names import ALONE, COST, SCRAPE, STORIES, WEDGED, WITH_RANKS, XID

CORE_PERCENT = 1.0
MEMORY_MIB = 64.0
SERIES = 1500
SCRAPE_RATIO = 1.5
XID_MS = 50.0
LATE_S = 1.0
FEWEST_STORIES = 60


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [
        *_cost(samples),
        *_scrape(samples),
        *_xid(samples),
        *_wedged(samples),
        *_stories(samples),
    ]


def _cost(samples: Sequence[Sample]) -> list[Figure]:
    found = []
    for who in (ALONE, WITH_RANKS):
        of_kind = [s for s in samples if s["row"] == COST and s.get("who") == who]
        core = [float(s["core_percent"]) for s in of_kind if "core_percent" in s]
        memory = [float(s["pss_mib"]) for s in of_kind if "pss_mib" in s]
        resident = [float(s["rss_mib"]) for s in of_kind if "rss_mib" in s]
        core_name = f"sidecar with children, 8 GPUs, 8 RDMA ports, {who}: processor"
        memory_name = f"sidecar with children, 8 GPUs, 8 RDMA ports, {who}: memory (PSS)"
        found += [
            at_most(core_name, "% of a core", _median(core), CORE_PERCENT, core),
            at_most(memory_name, "MiB", max(memory, default=None), MEMORY_MIB, memory),
            middle(f"the same, {who}: RSS added up, shared pages once each", "MiB", resident),
        ]
    return found


def _scrape(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == SCRAPE and "series" in s]
    with_ranks = [float(s["series"]) for s in samples if s["row"] == COST and "series" in s]
    series = [float(s["series"]) for s in of_row]
    ratios = [float(s["page_ms"]) / float(s["constant_ms"]) for s in of_row]
    return [
        at_most("series of one node", "series", max(series, default=None), SERIES, series),
        at_most(
            f"series of one node with {WITH_RANKS}, the leader's",
            "series",
            max(with_ranks, default=None),
            SERIES,
            with_ranks,
        ),
        at_most("scrape / as many constant series", "ratio", _median(ratios), SCRAPE_RATIO, ratios),
        middle("one scrape", "ms", [float(s["page_ms"]) for s in of_row]),
    ]


def _xid(samples: Sequence[Sample]) -> list[Figure]:
    took = [float(s["ms"]) for s in samples if s["row"] == XID and s.get("ms") is not None]
    missed = sum(s["row"] == XID and s.get("ms", 0) is None for s in samples)
    return [
        middle("XID to finding, p50", "ms", took),
        at_most("XID to finding, p99", "ms", percentile(took, 0.99), XID_MS, took),
        exactly("XIDs that were not found", "XIDs", float(missed) if took or missed else None, 0),
    ]


def _wedged(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == WEDGED and "late_s" in s]
    late = [float(s["late_s"]) for s in of_row]
    age = [float(s["rest_age_s"]) for s in of_row]
    lies = sum(int(s["values_told"]) for s in of_row)
    return [
        at_most(
            "NVML wedged: told after its deadline by", "s", max(late, default=None), LATE_S, late
        ),
        at_most("meanwhile, oldest tick behind the page", "s", max(age, default=None), 2.0, age),
        exactly(
            "values of GPUs told as fresh while wedged", "series", float(lies) if late else None, 0
        ),
    ]


def _stories(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == STORIES and "stories" in s]
    told = float(of_row[-1]["stories"]) if of_row else None
    right = 100.0 * of_row[-1]["right"] / of_row[-1]["stories"] if of_row else None
    return [
        at_least("XID stories", "stories", told, FEWEST_STORIES),
        exactly("XID stories judged right", "%", right, 100),
    ]


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
