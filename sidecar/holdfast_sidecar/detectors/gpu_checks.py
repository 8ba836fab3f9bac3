"""Checks of the gate about GPUs: all there, sound, well connected, and no fault of one open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.detectors.gate_subject import (
    GPU_PROBE,
    BlindError,
    Found,
    Seen,
    Subject,
    why_silent,
)
from holdfast_sidecar.gpus.recovery import ACTIONS, action_of
from holdfast_sidecar.readings.gpu import Gpu, Signal
from holdfast_sidecar.records.findings import Kind, Remedy

FAULTS = frozenset({Kind.GPU_FAULT, Kind.GPU_LOST})
"""Findings about GPUs that keep a node outside while they last, if they blame the hardware."""


def check_gpus(subject: Subject) -> Found:
    """As many as there should be, and each answers."""
    gpus, expected = known_gpus(subject), count_expected(subject)
    for gpu in gpus:
        if gpu.lost:
            yield Seen(f"{_named(gpu)} is lost: {gpu.lost}", gpu.uuid)
    there = sum(not gpu.lost for gpu in gpus)
    if subject.gpus is not None and there < expected:
        yield Seen(f"{there} of {expected} are there")


def check_recovery(subject: Subject) -> Found:
    """The driver itself asks for no reset and no reboot. What else it may ask for is about work
    that has ended by now, or about other nodes as well. A GPU that answers may work until its
    reset: where there is no other, that is tried, once.

    A number that is new to us may say anything: were it a fault, a newer driver could keep every
    node outside.
    """
    told = [(gpu, int(value)) for gpu, value in _values(subject, Signal.RECOVERY_ACTION)]
    ill = [(gpu, value) for gpu, value in told if action_of(value).remedy.blames_hardware]
    for gpu, value in ill:
        text = f"{_named(gpu)} needs {action_of(value).name}, says the driver"
        yield Seen(text, gpu.uuid, works=action_of(value).remedy is Remedy.RESET_GPU)
    new = sorted({value for _, value in told if value > 0 and value not in ACTIONS})
    if new and not ill:
        raise BlindError(f"the driver asks for {action_of(new[0]).name}")


def check_memory(subject: Subject) -> Found:
    """No row waits to be remapped, and none could not be. Until then it computes on: the driver
    uses the page no more (xid.md, 63 and 64)."""
    for signal, what in (
        (Signal.REMAP_FAILURE, "could not remap a row of its memory: it must be replaced"),
        (Signal.REMAP_PENDING, "has rows to be remapped: it must be reset"),
        (Signal.RETIREMENT_PENDING, "has pages to be retired: it must be reset"),
    ):
        for gpu, value in _values(subject, signal):
            if value > 0:
                yield Seen(f"{_named(gpu)} {what}", gpu.uuid, works=True)


def check_pcie(subject: Subject) -> Found:
    """No GPU computes behind a link that is narrower or slower than it can be."""
    for gpu in known_gpus(subject):
        if (slow := subject.links.slow(gpu.uuid)) and not gpu.lost:
            yield Seen(f"{_named(gpu)} computes behind {slow}", gpu.uuid, works=True)


def check_nvlink(subject: Subject) -> Found:
    """All links are up that the board has."""
    for gpu, active in _values(subject, Signal.NVLINKS_ACTIVE):
        expected = gpu.value(Signal.NVLINKS_EXPECTED)
        if expected is not None and 0 <= active < expected:
            told = f"{_named(gpu)} has {active:.0f} of {expected:.0f} links"
            yield Seen(told, gpu.uuid, works=True)


def check_faults(subject: Subject) -> Found:
    """No fault of a GPU is open that it must be reset, or replaced, for. Where that is known from
    the kernel's log alone, which may be of last week, and the GPU answers, it may well work: is it
    lost, or does the driver ask for a reboot now, other checks say so."""
    there = () if subject.gpus is None else subject.gpus.gpus
    answering = {gpu.uuid for gpu in there if not gpu.lost}
    for finding in subject.findings:
        if finding.kind in FAULTS and finding.remedy.blames_hardware:
            why = finding.evidence[0] if finding.evidence else finding.what
            told = f"{why} ({finding.remedy.value.replace('_', ' ')})"
            works = finding.kind is Kind.GPU_FAULT and finding.gpu in answering
            yield Seen(told, finding.gpu, works)


def count_expected(subject: Subject) -> int:
    """GPUs that should be there: as set, else as many as were ever seen."""
    reading = subject.machine.gpu
    seen = 0 if reading is None else max(reading.expected or 0, len(reading.gpus))
    return subject.settings.expected_gpus or seen


def known_gpus(subject: Subject) -> Sequence[Gpu]:
    """Those of which the driver says something now; none before the first reading."""
    reading = subject.machine.gpu
    if reading is None and (why := why_silent(subject, GPU_PROBE)):
        raise BlindError(why)
    if reading is not None and reading.stale_since_s is not None:
        raise BlindError("the driver does not answer")
    return () if reading is None else reading.gpus


def _values(subject: Subject, signal: Signal) -> Iterator[tuple[Gpu, float]]:
    """Those GPUs that answer and tell this, with what they tell."""
    for gpu in known_gpus(subject):
        value = gpu.value(signal)
        if value is not None and not gpu.lost:
            yield gpu, value


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.pci})" if gpu.pci else f"GPU {gpu.index}"
