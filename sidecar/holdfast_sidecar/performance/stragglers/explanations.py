"""How much of a rank's excess each signal explains: where it lies, times what the signal says.

A signal counts only as far as it is stronger than at the rank's healthy peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_sidecar.performance.stragglers import signals
from holdfast_sidecar.performance.stragglers.peers import PARTS
from holdfast_sidecar.performance.stragglers.signals import Signals, SlowCase
from holdfast_sidecar.records.steps import SlowCause

COMPUTING = ("forward", "backward", "optimizer")

FAULT_US = 4000.0
"""Of a page that is read again: 0.1 ms from an idle flash drive, some milliseconds from a network
volume, 10 ms from a disk; and who is short of memory is seldom alone with it, so that reads queue
up. Rather too much: at work nothing else makes a rank read pages at all."""

LEAST_SHARE = 0.02
"""Of the time: less of a signal is what any node has now and then."""

LEAST_FAULTS_PER_S = 20.0
"""A process at work reads none, a library that is imported late some dozens once."""

MEMORY_SHORT = 0.9
FOUND = 0.9
"""Of the time in the parts that it acts on, what a finding of the node explains: it says that there
is trouble, and not how much time it takes."""


@dataclass(frozen=True)
class Explanation:
    """A cause, how many microseconds of a step it explains, and what says so."""

    cause: SlowCause
    explains_us: float
    text: str
    is_measured: bool = True
    """By a signal or a finding; else only by where the time goes."""


def explain(case: SlowCase) -> Iterator[Explanation]:
    """Everything that may explain a part of it."""
    for rule in RULES:
        yield from rule(case)


def _by_work(case: SlowCase) -> Iterator[Explanation]:
    if case.work_us > 0:
        text = f"it is given {case.excess.work:.2f} times the work of its peers"
        yield Explanation(SlowCause.UNEVEN_WORK, case.work_us, text)


def _by_collector(case: SlowCase) -> Iterator[Explanation]:
    took_us = case.beyond("collector")
    if took_us > 0:
        text = f"Python's garbage collector takes {took_us / 1e3:.1f} ms of a step more"
        yield Explanation(SlowCause.COLLECTOR, took_us, text)


def _by_quota(case: SlowCase) -> Iterator[Explanation]:
    share = case.beyond("throttled")
    told = case.witness.quota if case.witness.is_shared_by_mates else ""
    found_us = FOUND * case.excess_us if told else 0.0
    if share >= LEAST_SHARE:
        text = f"its cgroup's CPU quota was used up in {case.own.throttled:.0%} of the time"
        text += _beside(case.peers, "throttled")
        yield Explanation(SlowCause.CPU_QUOTA, max(share * case.own.total, found_us), text)
    elif told:
        yield Explanation(SlowCause.CPU_QUOTA, found_us, told)


def _by_contention(case: SlowCase) -> Iterator[Explanation]:
    # Some kernels count a used up quota as waiting for a core too; the quota is asked for first.
    share = case.beyond("queued")
    if share >= LEAST_SHARE:
        text = f"it waited for a free core {case.own.queued:.0%} of the time"
        text += _beside(case.peers, "queued")
        yield Explanation(SlowCause.CPU_CONTENTION, share * case.own.total, text)


def _by_memory(case: SlowCase) -> Iterator[Explanation]:
    faults = case.beyond("faults_per_s")
    told = case.witness.memory
    if faults >= LEAST_FAULTS_PER_S and (told or not _lies_in_data(case)):
        by_count = faults * FAULT_US * case.own.total / 1e6
        by_pressure = max(0.0, case.beyond("storage")) * case.own.total
        text = f"it read {case.own.faults_per_s:.0f} pages a second again from storage"
        text += _beside(case.peers, "faults_per_s")
        found_us = MEMORY_SHORT * case.excess_us if told else 0.0
        explains_us = max(by_count, by_pressure, found_us)
        yield Explanation(
            SlowCause.MEMORY_PRESSURE, explains_us, "; ".join(filter(None, (text, told)))
        )
    elif told and case.witness.is_shared_by_mates:
        yield Explanation(SlowCause.MEMORY_PRESSURE, FOUND * case.excess_us, told)


def _by_clock(case: SlowCase) -> Iterator[Explanation]:
    computing_us = sum(case.own.part(part) for part in COMPUTING)
    usual = case.peers.clock if case.peers is not None and case.peers.clock > 0 else 1.0
    slower = 1 - case.own.clock / usual if case.own.clock > 0 else 0.0
    text, cause = case.witness.throttled, SlowCause.GPU_CLOCK
    if text and case.witness.is_power:
        cause = SlowCause.GPU_POWER
    if slower >= LEAST_SHARE:
        own = f"its GPU's clock is at {case.own.clock:.0%} of what it could be, {usual:.0%} at its"
        own += " peers'"
        found_us = FOUND * case.excess_in(*COMPUTING) if text else 0.0
        told = "; ".join(filter(None, (own, text)))
        yield Explanation(cause, max(slower * computing_us, found_us), told)
    elif text and case.own.clock <= 0:
        yield Explanation(cause, FOUND * case.excess_in(*COMPUTING), text)


def _by_peers(case: SlowCase) -> Iterator[Explanation]:
    if case.witness.shared:
        explains_us = FOUND * case.excess_in("transfer", *COMPUTING)
        yield Explanation(SlowCause.GPU_SHARED, explains_us, case.witness.shared)


def _by_gpu_link(case: SlowCase) -> Iterator[Explanation]:
    transfer_us = case.excess_in("transfer")
    if case.witness.gpu_link:
        parts = COMPUTING if case.witness.is_nvlink else ()
        explains_us = FOUND * (transfer_us + case.excess_in(*parts))
        yield Explanation(SlowCause.GPU_LINK, explains_us, case.witness.gpu_link)
    elif transfer_us > 0:
        text = "batches take longer from the host to the device, and nothing else explains it"
        yield Explanation(SlowCause.GPU_LINK, transfer_us, text, is_measured=False)


def _by_storage(case: SlowCase) -> Iterator[Explanation]:
    data_us = case.excess_in("data")
    share = case.beyond("storage")
    pages = case.beyond("faults_per_s") >= LEAST_FAULTS_PER_S and not case.witness.memory
    if share >= LEAST_SHARE or (pages and _lies_in_data(case)):
        text = f"its node waited for storage {case.own.storage:.0%} of the time"
        text += _beside(case.peers, "storage")
        explains_us = min(data_us, _waited_for_storage_us(case, share, pages, data_us))
        told = "; ".join(filter(None, (text, case.witness.storage)))
        yield Explanation(SlowCause.STORAGE, explains_us, told)
    elif case.witness.storage and case.witness.is_shared_by_mates:
        yield Explanation(SlowCause.STORAGE, FOUND * data_us, case.witness.storage)


def _waited_for_storage_us(case: SlowCase, share: float, pages: bool, data_us: float) -> float:
    """Its loader's workers read ahead, so that its own wait is less than that of the node's tasks,
    or more: several of them read at the same time, and the node's share knows only one."""
    if pages or case.witness.storage:
        return FOUND * data_us
    return WORKERS_AT_ONCE * share * case.own.total


WORKERS_AT_ONCE = 2.0


def _by_recompiling(case: SlowCase) -> Iterator[Explanation]:
    if case.beyond("compiled") >= RECOMPILES:
        text = f"something was compiled in {case.own.compiled:.0%} of its steps"
        yield Explanation(SlowCause.RECOMPILATION, FOUND * case.excess_in(*COMPUTING), text)


RECOMPILES = 0.05
"""Of its steps: one in twenty. What was compiled once is warm after two or three."""


def _by_part(case: SlowCase) -> Iterator[Explanation]:
    """What is left when no signal explains enough."""
    yield Explanation(
        SlowCause.DATA_LOADING,
        case.excess_in("data"),
        "it waits for its batches, and its node's storage is no slower than its peers'",
        is_measured=False,
    )
    yield Explanation(
        SlowCause.COMPUTE, case.excess_in(*COMPUTING), _unexplained(case), is_measured=False
    )


def _unexplained(case: SlowCase) -> str:
    if case.is_asleep:
        return signals.tell_asleep(case.own)
    whose = "its device or its host" if case.witness.has_device else "its host"
    return f"no signal of {whose} explains it"


def _lies_in_data(case: SlowCase) -> bool:
    """Whether its batches are what comes late: then pages that are read are their files'."""
    return case.excess_in("data") >= MOSTLY * case.excess_in(*PARTS)


MOSTLY = 0.6


def _beside(peers: Signals | None, signal: str) -> str:
    if peers is None:
        return ""
    value: float = getattr(peers, signal)
    return f", its peers {value:.0f}" if signal == "faults_per_s" else f", its peers {value:.0%}"


RULES = (
    _by_work,
    _by_collector,
    _by_recompiling,
    _by_peers,
    _by_gpu_link,
    _by_clock,
    _by_memory,
    _by_storage,
    _by_quota,
    _by_contention,
    _by_part,
)
"""The more specific the signal the earlier."""
