"""GPUs of this job's ranks on which somebody else computes, or whose memory was left behind.

Told only where pids are counted here as the driver counts them: in a container of its own every
rank would look like a stranger.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.detectors.gpus.naming import about
from holdfast_sidecar.gpus.history import unclaimed_bytes
from holdfast_sidecar.gpus.ownership import is_of
from holdfast_sidecar.gpus.processes import Company, Process
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, GpuUser
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

STAYS_S = 10.0
"""Ranks of an attempt that was ended keep their GPUs for seconds, and tools look in for less."""

FILLED_S = 30.0
"""The driver gives memory back after the last process of a GPU is gone, not at the same time."""

SERVANTS = ("nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine", "dcgm")
"""Names that begin so belong to the driver's own services. The kernel cuts names at 15 bytes. With
MPS it is the server, and not the rank, that the driver names."""


def find_shared_gpus(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    """Strangers, and what an earlier attempt left."""
    if not _counts_pids_alike(scene.reading, scene.company):
        return
    for gpu, _ in scene.answering():
        if not scene.ownership.of_gpu(gpu.uuid):
            continue
        for user in gpu.users or ():
            yield from _judge(gpu, user, scene, moment)
        yield from _left_behind(gpu, scene, moment)


def _counts_pids_alike(reading: GpuReading, company: Company) -> bool:
    """In the first namespace it is so; in another where the driver names a rank by its pid."""
    named = {user.pid for gpu in reading.gpus for user in gpu.users or ()}
    return company.sees_all_pids or any(seat.pid in named for seat in company.seats)


def _judge(gpu: Gpu, user: GpuUser, scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    since_s = scene.history.users_since_s.get((gpu.uuid, user.pid), scene.reading.read_at_s)
    process = scene.company.processes.get(user.pid)
    if process is None or scene.reading.read_at_s - since_s < STAYS_S:
        return  # gone by now, or hardly there
    text = _why_foreign(process, scene.company)
    if text:
        size = "" if user.memory_bytes is None else f", with {user.memory_bytes / 2**30:.1f} GiB"
        text = f"{process.name} (pid {user.pid}) computes on it{size}: {text}"
        yield about(gpu, Kind.GPU_SHARED, text, 0.9, scene, moment, f"pid{user.pid}")


def _why_foreign(process: Process, company: Company) -> str:
    """Empty: it belongs here."""
    if process.name.startswith(SERVANTS):
        return ""
    if is_of(process.pid, (seat.pid for seat in company.seats), company):
        return ""
    if is_of(process.pid, company.own_pids, company):
        # A rank that has not claimed its page yet is younger than the others' processes are old.
        oldest = min((seat.start_ticks for seat in company.seats), default=0)
        return "" if process.start_ticks >= oldest else "left over from an earlier attempt"
    return "it is no process of this job"


def _left_behind(gpu: Gpu, scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    since_s = scene.history.filled_since_s.get(gpu.uuid)
    if since_s is not None and scene.reading.read_at_s - since_s >= FILLED_S:
        size = unclaimed_bytes(gpu) / 2**30
        text = f"{size:.1f} GiB of its memory are in use, and by no process: left behind by a crash"
        yield about(gpu, Kind.GPU_SHARED, text, 0.5, scene, moment, "memory")
