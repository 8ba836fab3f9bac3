"""How often each XID came: bounded, for metrics; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from holdfast_sidecar.readings.xids import Tally
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.history import History
from holdfast_sidecar.xids.occurrence import FROM_FIELD, Occurrence

MOST_NUMBERS = 8
"""XIDs told of one GPU: eight GPUs make at most 192 series of three metrics. What is left out came
less often than what is told."""

MOST_SXIDS = 16

Key = tuple[str, int, int]
"""PCI address, XID, SXid."""


def key_of(one: Occurrence) -> Key:
    """What is counted together."""
    return (one.pci, one.number, one.sxid)


def tally_xids(history: History, seen: Mapping[Key, int]) -> dict[tuple[str, int], Tally]:
    """(PCI address, XID) -> how often. seen: since this sidecar started."""
    by_gpu: dict[str, dict[int, list[Occurrence]]] = defaultdict(lambda: defaultdict(list))
    for one in history.occurrences:
        if one.number and one.sources != {FROM_FIELD}:
            by_gpu[one.pci][one.number].append(one)
    return {
        (pci, number): _tally(numbers[number], seen.get((pci, number, 0), 0))
        for pci, numbers in by_gpu.items()
        for number in _most_frequent({number: len(ones) for number, ones in numbers.items()})
    }


def tally_sxids(history: History, seen: Mapping[Key, int]) -> dict[int, Tally]:
    """SXid -> how often, over all switches."""
    by_number: dict[int, list[Occurrence]] = defaultdict(list)
    for one in history.occurrences:
        if one.sxid:
            by_number[one.sxid].append(one)
    counts = Counter[int]()
    for (_, _, sxid), times in seen.items():
        counts[sxid] += times if sxid else 0
    kept = sorted(by_number, key=lambda sxid: (-len(by_number[sxid]), sxid))[:MOST_SXIDS]
    return {sxid: _tally(by_number[sxid], counts[sxid]) for sxid in sorted(kept)}


def _most_frequent(counts: Mapping[int, int]) -> list[int]:
    return sorted(sorted(counts, key=lambda number: (-counts[number], number))[:MOST_NUMBERS])


def _tally(ones: list[Occurrence], seen: int) -> Tally:
    newest = max(ones, key=lambda one: one.last_s)
    return Tally(seen, len(ones), newest.last_s, newest.asked or Remedy.NONE)
