"""How much memory snapshots may take here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from holdfast_sidecar.checkpoint.snapshot.slots import RoomReader
from holdfast_sidecar.config.settings import Settings, SnapshotSettings
from holdfast_sidecar.examination.check import NOTE, OK, WARN, Check
from holdfast_sidecar.policy.replication import Room, gigabytes

LITTLE_BYTES = 10**9
"""Two slots for a model of some forty million parameters with its optimizer's state: jobs that are
worth protecting need more."""


def check_memory(settings: Settings) -> list[Check]:
    """Look at shared memory, memory and control groups."""
    paths = settings.paths
    reader = RoomReader(Path(paths.shm_dir), paths.shm_reserve_bytes)
    try:
        in_files = reader.read(0)
    except OSError:
        return []  # a shared-memory directory that can't be read is named by another check
    room = dataclasses.replace(in_files, shared_memory=None)
    check = judge_memory(settings.snapshot, room)
    allowed = int(in_files.least * settings.snapshot.memory_share)
    if check.verdict == OK and allowed < LITTLE_BYTES:
        more = f"; with a sidecar of its own {gigabytes(allowed)}, as {paths.shm_dir} is small"
        check = dataclasses.replace(check, line=check.line + more)
    return [check]


def judge_memory(settings: SnapshotSettings, room: Room) -> Check:
    """Less than any model needs is worth a warning: the job would run without, and say so late."""
    if settings.every_steps < 0:
        return Check("snapshots", NOTE, "off (snapshot.every_steps = -1)")
    allowed = int(room.least * settings.memory_share)
    line = (
        f"{gigabytes(allowed)} may be taken ({settings.memory_share:.0%} of what is free), for "
        f"{settings.slots} copies of the state of all ranks"
    )
    if allowed >= LITTLE_BYTES:
        return Check("snapshots", OK, line)
    mend = "enlarge it (docker --shm-size)" if room.bound_by == "shared_memory" else "free some"
    what = "shared memory" if room.bound_by == "shared_memory" else "memory"
    return Check("snapshots", WARN, f"{line}; {what} is short: {mend}")
