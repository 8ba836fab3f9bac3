"""All figures of the on-call benchmark, in the order of docs/benchmarks.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_most, exactly, middle, ratio
from bench.oncall.names import (
    BOARDS,
    DATA,
    FORMATS,
    MOST_RANKS,
    PAGE,
    PAGER,
    PAINT,
    PROMETHEUS,
    RANKS,
    SCRAPE,
    STATIC,
)

RULES_PERCENT = 20.0
STATIC_KB = 100.0
DATA_KB = 200.0
PAINT_RATIO = 3.0
PAGER_S = 120.0


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [
        *_scrape(_of(samples, SCRAPE)),
        *_prometheus(_of(samples, PROMETHEUS)),
        *_page(_of(samples, PAGE)),
        *_pager(_of(samples, PAGER)),
    ]


def _of(samples: Sequence[Sample], row: str) -> list[Sample]:
    return [one for one in samples if one["row"] == row and "not_run" not in one]


def _scrape(samples: Sequence[Sample]) -> list[Figure]:
    found = []
    for ranks in RANKS:
        of_size = [one for one in samples if one["ranks"] == ranks]
        told = sorted({float(one["series"]) for one in of_size})
        found.append(middle(f"leader of {ranks} ranks: series", "series", told))
        for form in FORMATS:
            for is_packed in (False, True):
                of_kind = [
                    one for one in of_size if one["format"] == form and one["packed"] == is_packed
                ]
                found += _scraped(of_kind, f"leader of {ranks} ranks: {form}", is_packed)
    return found


def _scraped(samples: Sequence[Sample], name: str, is_packed: bool) -> list[Figure]:
    how = f"{name}, gzip" if is_packed else name
    took = [float(ms) for one in samples for ms in one["all_ms"]]
    size = [float(one["bytes"]) / 1000 for one in samples]
    return [middle(f"{how}: scrape", "ms", took), middle(f"{how}: size", "kB", size)]


def _prometheus(samples: Sequence[Sample]) -> list[Figure]:
    return [
        *_rules([one for one in samples if "group" in one]),
        *_scraping([one for one in samples if "nodes" in one]),
        *_dashboards([one for one in samples if "board" in one]),
    ]


def _rules(groups: Sequence[Sample]) -> list[Figure]:
    shares = [100 * took_s / one["interval_s"] for one in groups for took_s in one["took_s"]]
    return [
        at_most(
            f"rules at {MOST_RANKS} ranks: slowest evaluation of a group / its interval",
            "%",
            max(shares, default=None),
            RULES_PERCENT,
            shares,
        ),
        exactly("rules that could not be evaluated", "rules", _total(groups, "failed"), 0),
        middle("all groups, each at its slowest", "s", _together(groups)),
    ]


def _together(groups: Sequence[Sample]) -> list[float]:
    slowest = [max(one["took_s"]) for one in groups if one["took_s"]]
    return [sum(slowest)] if slowest else []


def _scraping(whole: Sequence[Sample]) -> list[Figure]:
    return [
        middle("series that Prometheus scrapes", "series", _each(whole, "series")),
        middle("slowest scrape of a node, as Prometheus tells it", "s", _each(whole, "scrape_s")),
        middle("scrapes that a node did not answer", "scrapes", _each(whole, "unanswered")),
        middle("alerts that fire meanwhile", "alerts", _each(whole, "firing")),
        middle("Prometheus: memory", "MiB", _each(whole, "resident_mib")),
        middle("Prometheus: processor", "% of a core", _each(whole, "core_percent")),
    ]


def _page(samples: Sequence[Sample]) -> list[Figure]:
    static = [one for one in samples if one["what"] == STATIC]
    data = [one for one in samples if one["what"] == DATA]
    paint = [one for one in samples if one["what"] == PAINT]
    empty, page, shown = (
        [float(ms) for one in paint for ms in one[name]]
        for name in ("empty_ms", "page_ms", "job_shown_ms")
    )
    whole_kb = [size / 1000 for size in _each(static, "bytes")]
    data_kb = [size / 1000 for size in _each(data, "packed_bytes")]
    return [
        at_most("page: static, whole", "kB", max(whole_kb, default=None), STATIC_KB),
        middle("page: static, packed", "kB", [n / 1000 for n in _each(static, "packed_bytes")]),
        at_most(
            f"page: data of {MOST_RANKS} ranks with a full map, packed",
            "kB",
            max(data_kb, default=None),
            DATA_KB,
        ),
        middle("page: the first who asks for them waits", "ms", _each(data, "ms")),
        at_most("page: first paint / an empty page's", "ratio", ratio(page, empty), PAINT_RATIO),
        middle("page: first paint", "ms", page),
        middle("page: first paint of an empty one", "ms", empty),
        middle("page: the job is shown", "ms", shown),
    ]


def _pager(samples: Sequence[Sample]) -> list[Figure]:
    took = [float(one["s"]) for one in samples if one["s"] is not None]
    wrong = sum(not _is_one_page(one) for one in samples)
    return [
        at_most("a node's death to its page", "s", max(took, default=None), PAGER_S, took),
        exactly(
            "deaths that were not one page, with node and cause",
            "deaths",
            float(wrong) if samples else None,
            0,
        ),
    ]


def _is_one_page(sample: Sample) -> bool:
    told = sample["pages"] == 1 and sample["pages_before"] == 0
    return bool(told and sample["names_node"] and sample["names_cause"])


def _dashboards(samples: Sequence[Sample]) -> list[Figure]:
    slowest = [
        _slowest(board, [one for one in samples if one["board"] == board]) for board in BOARDS
    ]
    empty = [sum(one["series"] == 0 for one in samples)] if samples else []
    return [*slowest, middle("queries that found nothing", "queries", empty)]


def _slowest(board: str, samples: Sequence[Sample]) -> Figure:
    took = tuple(_each(samples, "s"))
    name = f"{board} at {MOST_RANKS} ranks: slowest query"
    if not took:
        return middle(name, "s", took)
    return Figure(name, max(took), "s", spread=took)


def _each(samples: Iterable[Sample], name: str) -> list[float]:
    return [float(one[name]) for one in samples]


def _total(samples: Sequence[Sample], name: str) -> float | None:
    return sum(_each(samples, name)) if samples else None
