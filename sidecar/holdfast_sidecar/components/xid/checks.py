"""GPU faults that the driver told of: which rank's GPU, at which step, and what it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from holdfast_sidecar.components.gpu.metrics import labelled
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading
from holdfast_sidecar.components.xid.readings import Blame, Known, Verdict, XidReading
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.metric import GPU, NODE, Sample, Told, counter, gauge

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


def _is_here(verdict: Verdict, reading: XidReading) -> bool:
    """The log may tell of GPUs that the host has besides those that this node was given."""
    is_known = not verdict.number or not verdict.pci or verdict.pci in reading.gpus
    return is_known or reading.lacks_gpus


def _finding(
    verdict: Verdict,
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
        to_blame="" if verdict.blame is Blame.NOBODY else verdict.blame.value,
        rank_confidence=min((gpu.sureness for gpu in owned), default=1.0),
    )


def _evidence(
    verdict: Verdict,
    known: list[Known],
    ranks: list[int],
    reading: XidReading,
    node: str,
) -> Iterator[str]:
    yield verdict.text or f"{verdict.name} of the GPU at {verdict.pci}, told by NVML"
    yield f"{verdict.name} on {_where(verdict, known)}: {verdict.meaning}"
    reasons = "; ".join(verdict.why)
    yield f"remedy: {verdict.remedy.value}" + (f" ({reasons})" if reasons else "")
    if verdict.blame is not Blame.NOBODY:
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


def _where(verdict: Verdict, known: list[Known]) -> str:
    if not verdict.number:
        return f"the switch at {verdict.pci}" + (f", {len(known)} GPUs" if known else "")
    return f"GPU {known[0].index}" if known else "a GPU that the driver does not list"


def _follows(other: Verdict, verdict: Verdict) -> bool:
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


def draw_xids(reading: XidReading, gpus: GpuReading | None, told: Told) -> Iterator[Sample]:
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
