"""What comes again within a day: hardware gets the next harsher remedy, programs a test. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.occurrence import Occurrence
from holdfast_sidecar.xids.table import FollowUp, entry_of

AGAIN_S = 24 * 3600.0
"""Same GPU, same remedy within this time: it did not last. gpud asks for an inspection after two
reboots for one XID."""

TIMES = 3
"""A program's fault so often on one GPU while the others are clean is worth a test of the GPU;
once or twice is what a bug does that happens to strike there."""

TIMES_IN_ONE_PLACE = 2
"""In the same GPC and TPC twice is enough: a bug strikes every rank's GPU in the same place."""

APART_S = 60.0
"""Faults of one program end come together: a kernel's fault is told as 31 and 13 at once."""


def escalate(remedy: Remedy, one: Occurrence, earlier: Sequence[Occurrence]) -> tuple[Remedy, str]:
    """What it takes now, and why; the same remedy where it happens for the first time.

    earlier: what was judged of the same GPU or switch.
    """
    if not remedy.blames_hardware:
        return remedy, ""
    before = [other for other in earlier if is_again(one, other)]
    alike = [other for other in before if other.number == one.number]
    harsher = entry_of(one.number).on_repeat
    if harsher is not None and alike:
        return harsher, f"{one.name} came back within 24 h"
    if one.number == 74 and one.place and any(other.place == one.place for other in alike):
        return Remedy.REPLACE, f"{one.place} failed before within 24 h"
    asked = {other.asked for other in before}
    tried = remedy
    while tried in asked and tried is not Remedy.REPLACE:
        tried = tried.next
    if tried is remedy:
        return remedy, ""
    return tried, f"{remedy.value} was asked for before within 24 h and did not last"


def is_again(one: Occurrence, other: Occurrence) -> bool:
    """Whether the other was an earlier trouble, and not an earlier part of the same."""
    is_other = other.episode != one.episode and not other.is_suppressed
    return is_other and one.first_s - other.last_s <= AGAIN_S


def reason_to_check(one: Occurrence, everything: Iterable[Occurrence]) -> str:
    """Why the GPU should be tested after a program's fault; empty: there is no reason."""
    if FollowUp.CHECK_GPU not in entry_of(one.number).follow_ups:
        return ""
    faults = [other for other in everything if _is_programs(other, one)]
    if any(other.pci != one.pci for other in faults):
        return ""
    in_place = [o for o in faults if one.place and (o.number, o.place) == (13, one.place)]
    if _times(in_place) >= TIMES_IN_ONE_PLACE:
        return f"xid 13 in {one.place} again within 24 h, and on no other GPU"
    times = _times(faults)
    if times >= TIMES:
        return f"{times} programs failed on this GPU within 24 h, and on no other"
    return ""


def _is_programs(other: Occurrence, one: Occurrence) -> bool:
    entry = entry_of(other.number)
    return (
        FollowUp.CHECK_GPU in entry.follow_ups
        and not other.is_suppressed
        and not other.sxid
        and one.last_s - other.last_s <= AGAIN_S
    )


def _times(faults: Sequence[Occurrence]) -> int:
    """How often, where what comes together counts once."""
    times, until_s = 0, float("-inf")
    for fault in sorted(faults, key=lambda one: one.first_s):
        times += int(fault.first_s - until_s > APART_S)
        until_s = max(until_s, fault.last_s)
    return times
