"""What speaks of a rank beside its pace: its own signals, and those of its healthy peers.

Shares are parts of one, times microseconds of a step.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.frame import Excess
from holdfast_sidecar.performance.stragglers.peers import PARTS
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import StepLine

SAMPLE = 32
"""Peers whose middle is taken: the middle of so many is within a few percent of that of thousands,
whichever way the signal is spread."""

FORGETS = 0.8
"""What a step leaves of what was known before: some five steps make the mean, so that a burst of
one step is no signal, and a signal that came up shows within ten."""


class Signals(NamedTuple):
    """What a rank's line, or the middle of several, says of why it takes as long as it does."""

    total: float
    data: float
    transfer: float
    forward: float
    backward: float
    optimizer: float
    other: float
    collector: float
    compiled: float
    """Share of steps in which something was compiled."""
    cpu: float
    """Cores; 0: not known."""
    queued: float
    throttled: float
    faults_per_s: float
    storage: float
    clock: float
    """0: not known."""

    def part(self, name: str) -> float:
        """Time of that part of a step."""
        return float(getattr(self, name)) if name in PARTS else 0.0


def read(line: StepLine) -> Signals:
    """The signals of one line."""
    return Signals(
        line.total,
        line.data,
        line.transfer,
        line.forward,
        line.backward if line.waits_seen else 0,
        line.optimizer,
        line.other,
        line.collector,
        line.compiled / max(1, line.stride),
        line.cpu_permille / 1000,
        line.queued_permille / 1000,
        line.throttled_permille / 1000,
        line.faults_per_s,
        line.storage_permille / 1000,
        line.clock_permille / 1000,
    )


def middle(lines: Sequence[StepLine]) -> Signals | None:
    """Signal by signal the median of them, or of some of them; None of none."""
    if not lines:
        return None
    some = lines[:: max(1, len(lines) // SAMPLE)]
    if len(some) == 1:
        return read(some[0])
    return Signals(*map(statistics.median, zip(*map(read, some), strict=True)))


def blend(before: Signals | None, now: Signals, steps: int) -> Signals:
    """A mean over the latest steps, the newer the heavier."""
    if before is None:
        return now
    kept = FORGETS**steps
    mean = Signals(*(kept * b + (1 - kept) * n for b, n in zip(before, now, strict=True)))
    # What was not known yet is no zero.
    return mean if before.cpu > 0 else mean._replace(cpu=now.cpu)


def strongest(peers: Signals | None, mates: Signals | None) -> Signals | None:
    """Of two groups of healthy ranks the louder signal each, the slower clock: who is well in spite
    of a signal shows that it slows nobody."""
    if peers is None or mates is None:
        return peers or mates
    louder = Signals(*map(max, peers, mates))
    known = [clock for clock in (peers.clock, mates.clock) if clock > 0]
    times = {name: peers.part(name) for name in PARTS}
    return louder._replace(clock=min(known, default=0.0), total=peers.total, **times)


# What a node's findings say about one of its ranks.

POWER = "-power"
NVLINK = "-nvlink"
"""In `what` of a GPU's finding: which of its troubles it is (`detectors.gpus`)."""

SURE_ENOUGH = 0.5
"""That the GPU in trouble is this rank's."""


@dataclass(frozen=True)
class SlownessEvidence:
    """Each of them one line of evidence; empty: nothing was found."""

    throttled: str = ""
    is_power: bool = False
    """It is the power limit that holds its clock down, and neither heat nor a brake."""
    gpu_link: str = ""
    is_nvlink: bool = False
    shared: str = ""
    memory_errors: str = ""
    quota: str = ""
    memory: str = ""
    storage: str = ""
    heat: str = ""
    is_shared_by_mates: bool = True
    """Most of its node's ranks are slow too, or it is alone there. Else what is found about the
    node as a whole slows nobody by itself: ranks beside it are well in spite of it."""
    has_device: bool = False
    """It trains on a GPU."""
    is_host_only: bool = False
    """It trains on none, nor on anything like it."""


def hear(
    findings: Iterable[Finding], place: RankPlace, is_shared_by_mates: bool = True
) -> SlownessEvidence:
    """What they say about the rank of this place."""
    about = [one for one in findings if one.node == place.node]
    of_gpu = [
        one
        for one in about
        if place.rank in one.ranks and one.gpu and one.rank_confidence >= SURE_ENOUGH
    ]
    throttled = [one for one in of_gpu if one.kind is Kind.GPU_THROTTLED]
    links = [one for one in of_gpu if one.kind is Kind.GPU_LINK_DEGRADED]
    return SlownessEvidence(
        throttled=_first(throttled),
        is_power=bool(throttled) and all(POWER in one.what for one in throttled),
        gpu_link=_first(links),
        is_nvlink=any(NVLINK in one.what for one in links),
        shared=_of(of_gpu, Kind.GPU_SHARED),
        memory_errors=_of(of_gpu, Kind.ECC_STORM, Kind.GPU_MEMORY_FAILING),
        quota=_of(about, Kind.CPU_THROTTLED),
        memory=_of(about, Kind.MEMORY_PRESSURE),
        storage=_of(about, Kind.STORAGE_STALLED, Kind.STORAGE_SLOW),
        heat=_of(about, Kind.HOST_HOT),
        is_shared_by_mates=is_shared_by_mates,
        has_device=place.has_device,
        is_host_only=place.is_host_only,
    )


def _of(findings: Iterable[Finding], *kinds: Kind) -> str:
    return _first([one for one in findings if one.kind in kinds])


def _first(findings: Sequence[Finding]) -> str:
    """What the surest says first."""
    if not findings:
        return ""
    surest = max(findings, key=lambda one: one.confidence)
    return surest.evidence[0] if surest.evidence else surest.kind.value


# Whether a slow rank computed meanwhile or slept: by the CPU time of its process. Pure.
#
# A rank with a GPU says nothing by that: its process may rest while its device works.

MOST = 0.5
"""Of its excess: what was not on a CPU for less than half of it may have been computed."""

COMPUTES = 0.8
"""Of their own time: peers that are on a CPU for so much of it compute, and their CPU time is what
the work needs. Of peers that sleep too, it may be what their libraries spin while they wait."""


def slept_us(own: Signals, peers: Signals | None, excess_us: float) -> float:
    """How much of its excess its process was on no CPU, at least, microseconds of a step; 0: none,
    or its CPU time is not known."""
    if own.cpu <= 0:
        return 0.0
    on_cpu_us = own.cpu * own.total
    usual_us = 0.0 if peers is None else peers.cpu * peers.total
    slept = excess_us - on_cpu_us  # if all its CPU time lay in the excess
    if peers is not None and usual_us >= COMPUTES * _own_us(peers):
        off_cpu_us = max(0.0, _own_us(own) - on_cpu_us)
        slept = max(slept, min(off_cpu_us, excess_us - max(0.0, on_cpu_us - usual_us)))
    return max(0.0, slept)


def slept_most(own: Signals, peers: Signals | None, excess_us: float) -> bool:
    """Whether it was on no CPU for most of what it takes longer."""
    return slept_us(own, peers, excess_us) > MOST * excess_us


def tell_asleep(own: Signals) -> str:
    """As evidence."""
    return (
        f"its process used {own.cpu:.0%} of a CPU meanwhile: it slept or waited for something"
        " outside, it did not compute"
    )


def _own_us(signals: Signals) -> float:
    parts = (signals.data, signals.transfer, signals.forward, signals.backward)
    return sum(parts) + signals.optimizer + signals.other


# One who is slow, beside those who are well: all that a cause of it is told by.


@dataclass(frozen=True)
class SlowCase:
    """One slow rank and all that is known of it."""

    excess: Excess
    own: Signals
    peers: Signals | None = None
    """Of those that are well. None: there are none, so that only what is known to be bad counts."""
    witness: SlownessEvidence = field(default_factory=SlownessEvidence)

    @property
    def parts_us(self) -> Mapping[str, float]:
        """Part of a step -> what it takes beyond those who are well: where half of a role is slow,
        its middle says nothing."""
        if self.peers is None:
            return self.excess.parts_us
        return {part: self.own.part(part) - self.peers.part(part) for part in PARTS}

    @property
    def excess_us(self) -> float:
        """Beyond its peers', by its work or not."""
        told_us = self.excess.own_us - self.excess.peers_us + self.work_us
        return max(1.0, told_us if self.peers is None else sum(self.parts_us.values()))

    @property
    def work_us(self) -> float:
        """What more work explains of it."""
        share = self.excess.by_work
        return max(0.0, self.excess.peers_us * share / (1 + share)) if share > -1 else 0.0

    def beyond(self, signal: str) -> float:
        """What its signal is beyond that of its peers."""
        mine: float = getattr(self.own, signal)
        theirs: float = 0.0 if self.peers is None else getattr(self.peers, signal)
        return mine - theirs

    def excess_in(self, *parts: str) -> float:
        """What these parts take beyond those of its peers."""
        return sum(max(0.0, self.parts_us.get(part, 0.0)) for part in parts)

    @property
    def is_asleep(self) -> bool:
        """Whether its process was on no CPU for most of it, and it has no device that could have
        worked meanwhile."""
        if not self.witness.is_host_only:
            return False
        return slept_most(self.own, self.peers, self.excess_us)

    @property
    def main_part(self) -> str:
        """Where most of it lies."""
        parts = self.parts_us
        return max(parts, key=lambda part: parts[part]) if parts else "other"
