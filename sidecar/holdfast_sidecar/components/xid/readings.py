"""What the driver said of GPUs' faults, and what was made of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.components.gpu.ownership import CERTAIN
from holdfast_sidecar.components.xid.catalog import FollowUp
from holdfast_sidecar.components.xid.history import FROM_FIELD, History, Occurrence
from holdfast_sidecar.records.findings import Remedy

# What was made of a GPU's trouble: plain data, between the engine and the findings.


class Blame(str, Enum):
    """Whose doing it is."""

    NOBODY = "nobody"
    APPLICATION = "application"
    GPU = "gpu"
    SWITCH = "switch"


@dataclass(frozen=True)
class Verdict:
    """On one kind of trouble of one GPU or switch. Times are Unix seconds."""

    pci: str
    name: str
    """`xid 79`, `sxid 20034`."""
    meaning: str
    remedy: Remedy
    blame: Blame
    why: tuple[str, ...]
    text: str
    """The driver's own line; empty where only NVML told of it."""
    first_s: float
    last_s: float
    times_24h: int
    number: int = 0
    """XID; 0 for a switch's."""
    follow_ups: tuple[FollowUp, ...] = ()
    check: bool = False
    """The GPU should pass a test before it is used again."""
    is_suppressed: bool = False
    """It follows from something else."""
    root: str = ""
    """Name of what it follows from; empty: from nothing that can be named."""
    is_old: bool = False
    """From before the ranks that run now began."""
    is_urgent: bool = False
    """Running work must end for it."""
    is_event: bool = True
    """False: nothing was told, the driver's recovery action was read and had changed."""
    suspects: tuple[str, ...] = ()
    """PCI addresses of the GPUs it touches: its own, or all behind a switch."""


@dataclass(frozen=True)
class Tally:
    """How often one XID, or one SXid, came. Times are Unix seconds."""

    seen: int
    """Since this sidecar started."""
    in_24h: int
    last_s: float
    remedy: Remedy
    """What was last judged to be needed."""


@dataclass(frozen=True)
class Known:
    """A GPU as it was last listed; one that fell off the bus may be listed no more."""

    uuid: str
    index: int
    rank: int | None = None
    """Of the attempt that runs; None: nobody's, or not known."""
    sureness: float = 0.0
    """How sure that is, 0 to 1."""

    @property
    def is_certain(self) -> bool:
        """Whether it was seen to be that rank's, rather than worked out."""
        return self.sureness >= CERTAIN


@dataclass(frozen=True)
class XidReading:
    """The node at one tick."""

    verdicts: tuple[Verdict, ...] = ()
    """What is not over."""
    gpus: Mapping[str, Known] = field(default_factory=dict)
    """By PCI address."""
    xids: Mapping[tuple[str, int], Tally] = field(default_factory=dict)
    """(PCI address, XID) -> how often; the most frequent few of each GPU."""
    sxids: Mapping[int, Tally] = field(default_factory=dict)
    """SXid -> how often, over all switches of the node."""
    steps: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    """(PCI address, name) of a verdict -> rank -> how many steps it had done when that happened."""
    asked_since: Mapping[str, float] = field(default_factory=dict)
    """UUID of a GPU for which the driver asks for something -> since when it does, Unix seconds."""
    lacks_gpus: bool = False
    """The driver lists fewer than there should be: one that is not known may be among these."""


# How often each XID came: bounded, for metrics; pure.

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
