"""Whether this node is fit for an attempt, by its newest readings: a tuple of checks.

A check that can't be made is told of and passes: a node is kept outside for what is seen, never for
what is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from holdfast_sidecar.components.gpu.links import LinkMemory
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.components.health_check.stress_request import CPU
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.catalog import ACTIONS, action_of
from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy
from holdfast_sidecar.records.reports import Exertion, GateVerdict

# What the gate judges a node by, and what one of its checks may say of it.

GPU_PROBE, HOST_PROBE = "gpu", "host"
"""Names of the probes without which checks are blind."""


@dataclass(frozen=True)
class Subject:
    """What the gate judges by."""

    machine: MachineReading
    settings: GateSettings = field(default_factory=GateSettings)
    findings: Sequence[Finding] = ()
    """Of this node, as of this tick."""
    links: LinkMemory = field(default_factory=LinkMemory)
    exertion: Exertion | None = None
    """The newest test that it was put to."""
    far_behind: Sequence[str] = ()
    """What of that lies far behind the other nodes."""
    clock_off_s: float = 0.0
    """By how much its wall clock is wrong, if most other nodes say so; ahead is positive."""

    @property
    def gpus(self) -> GpuReading | None:
        """What the driver says now; None while it says nothing that is fresh."""
        reading = self.machine.gpu
        is_fresh = reading is not None and reading.stale_since_s is None
        return reading if is_fresh else None


class BlindError(Exception):
    """A check can't be made, and why."""


class Seen(NamedTuple):
    """What is wrong, with which GPU (its UUID; empty: with the node), and whether an attempt would
    run all the same: see Trouble."""

    what: str
    gpu: str = ""
    works: bool = False


Found = Iterator[Seen]


def why_silent(subject: Subject, probe: str) -> str:
    """Why this probe says nothing; empty: it was not its turn yet."""
    failing = (health for health in subject.machine.failing if health.name == probe)
    return next((health.error or "its probe fails" for health in failing), "")


# Checks of the gate about GPUs: all there, sound, well connected, and no fault of one open.

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


# Checks of the gate about what is around the GPUs: links, room, the clock, the newest test.

CHECKPOINT = "checkpoint"
"""Purpose of the room that checkpoints go to."""


PORT = re.compile(r"[^\s/]+/\d+")
"""How a port of an RDMA device is named (`mlx5_0/1`); interfaces have no slash."""


def check_links(subject: Subject) -> Found:
    """No link was lost for good, and no RDMA port runs slower than it should."""
    for finding in subject.findings:
        is_lost = finding.kind is Kind.LINK_DOWN and finding.remedy.blames_hardware
        is_slow = finding.kind is Kind.LINK_DEGRADED and PORT.fullmatch(finding.what)
        if is_lost or is_slow:
            # Whether the job needs this very link nobody knows here.
            yield Seen("; ".join(finding.evidence[:1]) or finding.what, works=True)


def check_room(subject: Subject) -> Found:
    """There is room for a checkpoint on this node's own disk. Storage that nodes share says nothing
    about one of them."""
    host, least = subject.machine.host, subject.settings.least_room_bytes
    if host is None:
        if why := why_silent(subject, HOST_PROBE):
            raise BlindError(why)
        return
    if (silent_s := host.silent_rooms.get(CHECKPOINT)) is not None:
        raise BlindError(f"its file system has not answered for {silent_s:.0f} s")
    is_shared = any(storage.purpose == CHECKPOINT for storage in host.storage)
    room = host.rooms.get(CHECKPOINT)
    if room is not None and not is_shared and room.size_bytes and room.available_bytes < least:
        left = f"{room.available_bytes / 2**20:.0f} MiB"
        told = f"{left} are left for checkpoints, less than {least / 2**20:.0f} MiB"
        yield Seen(told, works=True)


def check_clock(subject: Subject) -> Found:
    """The wall clock agrees with most of the others, roughly."""
    if off_s := subject.clock_off_s:
        side = "ahead of" if off_s > 0 else "behind"
        yield Seen(f"it is {abs(off_s):.0f} s {side} those of most other nodes", works=True)


def check_test(subject: Subject) -> Found:
    """In the newest test nothing came out wrong, nor far behind the others."""
    if subject.exertion is not None and subject.exertion.state == "failed":
        raise BlindError(subject.exertion.reason)
    wrong = [] if subject.exertion is None else subject.exertion.wrong
    yield from (Seen(what) for what in wrong)
    yield from (Seen(what, works=True) for what in subject.far_behind)


GARBAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a check raises over a reading that makes no sense: it is blind then, the others go on."""


@dataclass(frozen=True)
class UnfitReason:
    """Why a node is unfit."""

    check: str
    what: str
    gpu: str = ""
    """UUID, where it is about one."""
    works: bool = False
    """An attempt would run all the same, if not as it should."""

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.check}: {self.what}"


@dataclass(frozen=True)
class Fitness:
    """What all checks came to: passed, failed (with troubles), or blind (with a reason)."""

    troubles: tuple[UnfitReason, ...] = ()
    blind: Mapping[str, str] = field(default_factory=dict)
    gpus: int | None = 0
    """That are well; None: the driver does not say."""
    gpus_all: int = 0
    is_known: bool = True
    """False: nothing was read yet."""

    def verdict(self, now_unix_s: float, after: str = "") -> GateVerdict:
        """As it travels."""
        state = "unfit" if self.troubles else "fit" if self.is_known else "unknown"
        return GateVerdict(
            state,
            [trouble.words for trouble in self.troubles],
            now_unix_s,
            [f"{check}: {why}" for check, why in self.blind.items()],
            after,
            self.gpus,
            self.gpus_all,
            bool(self.troubles) and all(trouble.works for trouble in self.troubles),
        )

    def passes(self, check: str) -> bool | None:
        """Whether this check was passed; None where it could not be made."""
        if not self.is_known or check in self.blind:
            return None
        return all(trouble.check != check for trouble in self.troubles)


CHECKS: Mapping[str, Callable[[Subject], Found]] = {
    "gpus": check_gpus,
    "recovery": check_recovery,
    "gpu memory": check_memory,
    "pcie": check_pcie,
    "nvlink": check_nvlink,
    "gpu faults": check_faults,
    "links": check_links,
    "room": check_room,
    "clock": check_clock,
    "test": check_test,
}
"""In the order in which a person should hear of them."""


def judge_fitness(subject: Subject) -> Fitness:
    """Make every check."""
    troubles: list[UnfitReason] = []
    blind: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            troubles += [UnfitReason(name, *seen) for seen in check(subject)]
        except BlindError as error:
            blind[name] = str(error)
        except GARBAGE as error:
            blind[name] = f"{type(error).__name__}: {error}"
    is_known = subject.machine.gpu is not None or why_silent(subject, GPU_PROBE) != ""
    expected = count_expected(subject)
    return Fitness(tuple(troubles), blind, _well(subject, troubles), expected, is_known)


def _well(subject: Subject, troubles: Sequence[UnfitReason]) -> int | None:
    if subject.gpus is None:
        return None
    unwell = {trouble.gpu for trouble in troubles}
    return sum(not gpu.lost and gpu.uuid not in unwell for gpu in subject.gpus.gpus)


def find_gate_troubles(fitness: Fitness, acts: bool, moment: Moment) -> Iterator[Finding]:
    """That this node is unfit, and what its gate can't see."""
    if fitness.troubles:
        told = [trouble.words for trouble in fitness.troubles]
        if not acts:
            told.append(
                "it is taken in all the same (gate.mode); `holdfast node drain` prevents it"
            )
        yield Finding(Kind.NODE_UNFIT, moment.node, moment.now_unix_s, 0.9, evidence=told)
    for why in dict.fromkeys(fitness.blind.values()):
        checks = [check for check, reason in fitness.blind.items() if reason == why]
        told = [f"{', '.join(checks)} can't be checked, the node counts as fit: {why}"]
        yield Finding(
            Kind.GATE_BLIND, moment.node, moment.now_unix_s, 0.9, evidence=told, what=checks[0]
        )


# A node's figures beside the median of the other nodes that were tested. Pure.

SLOW_RATIO = 0.8
"""Healthy GPUs of one model lie within a few percent of each other, so a fifth is told."""

UNFIT_RATIO = 0.5
"""Half the others' speed halves the job's, for every step waits for the slowest: a node like that
is better left out. Peers' launchers draw the line there too (twice the median time)."""


@dataclass(frozen=True)
class Compared:
    """One figure. `median`: of the others; None: nobody else has one."""

    name: str
    value: float
    median: float | None

    @property
    def ratio(self) -> float | None:
        """This node's share of the median."""
        return self.value / self.median if self.median else None


def compare(own: Exertion, others: Iterable[Exertion]) -> list[Compared]:
    """Every figure that this node has, beside those of nodes like it."""
    alike = [one for one in others if one.state == "done" and _kind(one) == _kind(own)]
    return [
        Compared(name, value, _median(one.figures[name] for one in alike if name in one.figures))
        for name, value in sorted(own.figures.items())
    ]


def far_behind(own: Exertion, others: Iterable[Exertion]) -> Iterator[str]:
    """What makes this node unfit beside the others. CPUs are shared with whatever else runs, so
    their figures are only told."""
    if own.device in ("", CPU):
        return
    for one in compare(own, others):
        if one.ratio is not None and one.ratio < UNFIT_RATIO:
            yield f"{words(one.name)}: {one.ratio:.0%} of the median of the other nodes"


def words(name: str) -> str:
    """`matmul`, `memory`, `all reduce`."""
    return name.removesuffix("_per_s").rpartition("_")[0].replace("_", " ")


def _kind(one: Exertion) -> tuple[str, int]:
    return one.device, one.devices


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return median(known) if known else None
