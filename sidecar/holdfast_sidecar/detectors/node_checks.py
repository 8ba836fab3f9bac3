"""Checks of the gate about what is around the GPUs: links, room, the clock, the newest test."""

from __future__ import annotations

import re

from holdfast_sidecar.detectors.gate_subject import (
    HOST_PROBE,
    BlindError,
    Found,
    Seen,
    Subject,
    why_silent,
)
from holdfast_sidecar.records.findings import Kind

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
