"""What the driver said of GPUs' faults, and what was made of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.components.gpu.metrics import labelled
from holdfast_sidecar.components.gpu.ownership import CERTAIN
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading
from holdfast_sidecar.components.xid.catalog import FollowUp
from holdfast_sidecar.components.xid.history import FROM_FIELD, History, Occurrence
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy
from holdfast_sidecar.records.metric import GPU, NODE, Labels, Sample, counter, gauge

# What was made of a GPU's trouble: plain data, between the engine and the findings.


class FaultOwner(str, Enum):
    """Whose doing it is."""

    NOBODY = "nobody"
    APPLICATION = "application"
    GPU = "gpu"
    SWITCH = "switch"


@dataclass(frozen=True)
class XidVerdict:
    """On one kind of trouble of one GPU or switch. Times are Unix seconds."""

    pci: str
    name: str
    """`xid 79`, `sxid 20034`."""
    meaning: str
    remedy: Remedy
    blame: FaultOwner
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
class XidCounts:
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

    verdicts: tuple[XidVerdict, ...] = ()
    """What is not over."""
    gpus: Mapping[str, Known] = field(default_factory=dict)
    """By PCI address."""
    xids: Mapping[tuple[str, int], XidCounts] = field(default_factory=dict)
    """(PCI address, XID) -> how often; the most frequent few of each GPU."""
    sxids: Mapping[int, XidCounts] = field(default_factory=dict)
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


def tally_xids(history: History, seen: Mapping[Key, int]) -> dict[tuple[str, int], XidCounts]:
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


def tally_sxids(history: History, seen: Mapping[Key, int]) -> dict[int, XidCounts]:
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


def _tally(ones: list[Occurrence], seen: int) -> XidCounts:
    newest = max(ones, key=lambda one: one.last_s)
    return XidCounts(seen, len(ones), newest.last_s, newest.asked or Remedy.NONE)


# GPU faults that the driver told of: which rank's GPU, at which step, and what it asks for.

SURE = 0.95
"""The driver said so itself."""


def find_gpu_faults(
    reading: XidReading, histories: Mapping[int, RankHistory], moment: Moment
) -> Iterator[Finding]:
    """One for each kind of trouble of each GPU or switch that is not over.

    What only follows from something else is in that one's evidence. What the driver merely shows
    when it is asked (field 230) is for those who ask it. Without any GPU of ours the lines are
    about others', or nobody's.
    """
    if not reading.gpus:
        return
    for verdict in reading.verdicts:
        if verdict.is_event and not verdict.is_suppressed and _is_here(verdict, reading):
            yield _finding(verdict, reading, histories, moment)


def _is_here(verdict: XidVerdict, reading: XidReading) -> bool:
    """The log may tell of GPUs that the host has besides those that this node was given."""
    is_known = not verdict.number or not verdict.pci or verdict.pci in reading.gpus
    return is_known or reading.lacks_gpus


def _finding(
    verdict: XidVerdict,
    reading: XidReading,
    histories: Mapping[int, RankHistory],
    moment: Moment,
) -> Finding:
    known = [reading.gpus[pci] for pci in verdict.suspects if pci in reading.gpus]
    owned = [gpu for gpu in known if gpu.rank is not None and gpu.rank in histories]
    ranks = sorted({gpu.rank for gpu in owned if gpu.rank is not None})
    one = known[0] if len(known) == 1 and verdict.number else None
    return Finding(
        kind=Kind.GPU_FAULT,
        node=moment.node,
        since_unix_s=verdict.first_s,
        confidence=SURE,
        ranks=ranks,
        evidence=list(_evidence(verdict, known, ranks, reading, moment.node)),
        acts=verdict.is_urgent and bool(owned) and all(gpu.is_certain for gpu in owned),
        what=f"{verdict.name} on {verdict.pci or 'an unknown GPU'}",
        gpu="" if one is None else one.uuid,
        gpu_index=None if one is None else one.index,
        remedy=verdict.remedy,
        check=verdict.check,
        to_blame="" if verdict.blame is FaultOwner.NOBODY else verdict.blame.value,
        rank_confidence=min((gpu.sureness for gpu in owned), default=1.0),
    )


def _evidence(
    verdict: XidVerdict,
    known: list[Known],
    ranks: list[int],
    reading: XidReading,
    node: str,
) -> Iterator[str]:
    yield verdict.text or f"{verdict.name} of the GPU at {verdict.pci}, told by NVML"
    yield f"{verdict.name} on {_where(verdict, known)}: {verdict.meaning}"
    reasons = "; ".join(verdict.why)
    yield f"remedy: {verdict.remedy.value}" + (f" ({reasons})" if reasons else "")
    if verdict.blame is not FaultOwner.NOBODY:
        yield f"to blame: {verdict.blame.value}"
    if verdict.is_old:
        yield "it is from before these ranks began"
    if verdict.check:
        yield f"it may be the GPU: `holdfast nodes test {node}` says whether it computes rightly"
    if verdict.times_24h > 1:
        yield f"{verdict.times_24h} times in 24 h"
    follows = sorted({one.name for one in reading.verdicts if _follows(one, verdict)})
    if follows:
        yield f"what follows from it is left out: {', '.join(follows)}"
    guessed = [gpu for gpu in known if gpu.rank in ranks and not gpu.is_certain]
    if guessed and verdict.is_urgent:
        whose = ", ".join(f"GPU {gpu.index} is rank {gpu.rank}'s" for gpu in guessed)
        yield f"no rank is ended for it: it is not certain that {whose}"
    steps = reading.steps.get((verdict.pci, verdict.name), {})
    for rank in ranks:
        if rank in steps:
            yield f"rank {rank} had done {steps[rank]} steps"


def _where(verdict: XidVerdict, known: list[Known]) -> str:
    if not verdict.number:
        return f"the switch at {verdict.pci}" + (f", {len(known)} GPUs" if known else "")
    return f"GPU {known[0].index}" if known else "a GPU that the driver does not list"


def _follows(other: XidVerdict, verdict: XidVerdict) -> bool:
    return other.is_suppressed and (other.pci, other.root) == (verdict.pci, verdict.name)


# Metrics of what the NVIDIA driver said of faults; `xid_samples.py` fills them in.

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


# What is told about XIDs.


def draw_xids(reading: XidReading, gpus: GpuReading | None, told: Labels) -> Iterator[Sample]:
    """By the GPU's index; by its PCI address where no driver lists it."""
    names = {gpu.pci: name for name, gpu in labelled(_listed(reading, gpus))}
    for (pci, number), tally in sorted(reading.xids.items()):
        of = told.about(gpu=names.get(pci, pci), xid=str(number))
        yield from of("gpu_xid_errors_total", tally.seen)
        last = ("gpu_xid_last_timestamp_seconds", tally.last_s)
        yield from of(*last, remedy=tally.remedy.value)
        yield from of("gpu_xid_events_last_24h", tally.in_24h)
    for sxid, tally in sorted(reading.sxids.items()):
        yield from told("nvswitch_sxid_errors_total", tally.seen, sxid=str(sxid))


def _listed(reading: XidReading, gpus: GpuReading | None) -> Iterable[Gpu]:
    """While nothing can be read: those that were listed last."""
    if gpus is not None and gpus.gpus:
        return gpus.gpus
    return [Gpu(one.index, one.uuid, "", pci) for pci, one in reading.gpus.items()]
