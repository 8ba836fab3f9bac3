"""Whether an expression of a rule or a dashboard fits the catalogue. Pure; whether it is valid
PromQL at all is promtool's to say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from holdfast_sidecar.metrics.catalogue import CATALOGUE
from holdfast_sidecar.metrics.promql import LabelList, Selector, take_apart
from holdfast_sidecar.records.metric import Entry

OF_PROMETHEUS = (
    "up",
    "ALERTS",
    "ALERTS_FOR_STATE",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
)
"""Series that Prometheus makes itself."""

EVERYWHERE = frozenset({"run", "job", "cluster", "__name__"})
"""Labels that every series has: `job` from the scrape, `cluster` where somebody sets one."""

OF_A_TARGET = frozenset({"instance", "node"})
"""Labels that whatever a sidecar tells of itself has, and the job's series have not."""

OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
"""A gauge that falls looks to them like a counter that begins again."""

COUNTING = OF_COUNTERS | {"changes"}
"""What counters are for."""

WHETHER = frozenset(
    {
        "absent",
        "absent_over_time",
        "count",
        "count_over_time",
        "group",
        "present_over_time",
        "timestamp",
    }
)
"""Of these the value does not matter."""

OF_GAUGES = frozenset({"delta", "idelta", "deriv", "predict_linear", "holt_winters"})
"""A counter that begins again looks to them like a fall."""


@dataclass(frozen=True)
class Trouble:
    """Where an expression does not fit the catalogue."""

    kind: str
    """unknown, label, bare_counter, rate_of_gauge."""
    name: str
    """The metric."""
    words: str
    """One clear line."""


def names(expression: str) -> set[str]:
    """Metrics that it selects."""
    return {selector.name for selector in take_apart(expression).selectors}


def troubles(
    expression: str,
    *,
    recorded: Collection[str] = (),
    others: Collection[str] = OF_PROMETHEUS,
) -> list[Trouble]:
    """What does not fit, in the order in which it stands there; empty: all does.

    recorded: names that rules record; others: further series that are known to be there.
    """
    taken = take_apart(expression)
    found: list[Trouble] = []
    for selector in taken.selectors:
        if selector.name in BY_NAME:
            found += _judge(selector, BY_NAME[selector.name])
        elif selector.name not in recorded and selector.name not in others:
            words = f"{selector.name} is not in the catalogue"
            found.append(Trouble("unknown", selector.name, words))
    for labels in taken.lists:
        found += _judge_list(labels, taken.new_labels)
    return list(dict.fromkeys(found))


def known_labels(entry: Entry) -> frozenset[str]:
    """Labels that its series have on the server, those of the target with them."""
    of_target: frozenset[str] = frozenset() if entry.leader_only else OF_A_TARGET
    return EVERYWHERE | of_target | {*entry.labels}


def _by_name() -> Mapping[str, Entry]:
    """Entries by the names that their series have: a summary's are two."""
    known: dict[str, Entry] = {}
    for entry in CATALOGUE:
        ends = ("_count", "_sum") if entry.kind == "summary" else ("",)
        known.update({entry.name + end: entry for end in ends})
    return known


BY_NAME = _by_name()


def _judge(selector: Selector, entry: Entry) -> Iterator[Trouble]:
    name = selector.name
    for label in selector.labels:
        if label not in known_labels(entry):
            yield Trouble("label", name, f"{name} has no label {label}")
    nearest = selector.inside[0] if selector.inside else ""
    if entry.kind == "gauge" and nearest in OF_COUNTERS:
        yield Trouble("rate_of_gauge", name, f"{name} is a gauge: {nearest}() is for counters")
    if entry.kind != "gauge" and not _is_counted(selector):
        words = f"{name} is a counter: take its rate() or increase(), it begins again at times"
        yield Trouble("bare_counter", name, words)


def _is_counted(selector: Selector) -> bool:
    around = {*selector.inside}
    return bool(around & (COUNTING | WHETHER)) and not around & OF_GAUGES


def _judge_list(labels: LabelList, new: Collection[str]) -> Iterator[Trouble]:
    """A label that none of these series has does nothing, which is never what was meant."""
    entries = [BY_NAME.get(selector.name) for selector in labels.about]
    if not entries or None in entries:
        return
    known = {label for entry in entries if entry is not None for label in known_labels(entry)}
    for label in labels.labels:
        if label not in known and label not in new and labels.word != "without":
            name = labels.about[0].name
            words = f"{labels.word} ({label}): none of these series has such a label"
            yield Trouble("label", name, words)
