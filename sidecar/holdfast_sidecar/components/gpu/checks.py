"""A finding about one GPU: who it is, whose, and how one trouble of it is told from another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from holdfast_sidecar.components.gpu.history import GpuContext, Track, unclaimed_bytes
from holdfast_sidecar.components.gpu.ownership import (
    GpuProcess,
    GpuUsers,
    OwnershipSource,
    Tie,
    is_of,
)
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, NvmlSilence, Signal
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.catalog import ACTIONS, NOTHING, RecoveryAction
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy


def about(
    gpu: Gpu,
    kind: Kind,
    text: str,
    confidence: float,
    scene: GpuContext,
    moment: Moment,
    trouble: str = "",
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    """The finding; `trouble` sets apart what may be wrong with one GPU at the same time."""
    ranks = scene.ownership.ranks_of(gpu.uuid)
    sureness = scene.ownership.sureness(gpu.uuid) if ranks else 1.0
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=confidence,
        ranks=ranks,
        evidence=[f"{named(gpu)}: {text}", *_whose(gpu, scene)],
        what=f"gpu{gpu.index}-{trouble}" if trouble else f"gpu{gpu.index}",
        gpu=gpu.uuid,
        gpu_index=gpu.index,
        remedy=remedy,
        rank_confidence=sureness,
    )


def named(gpu: Gpu) -> str:
    """`GPU 3 (0000:17:00.0)`."""
    return f"GPU {gpu.index} ({gpu.pci})" if gpu.pci else f"GPU {gpu.index}"


def _whose(gpu: Gpu, scene: GpuContext) -> list[str]:
    return [_say(tie) for tie in scene.ownership.of_gpu(gpu.uuid)]


def _say(tie: Tie) -> str:
    rank = f"rank {tie.rank}'s (local {tie.local_rank})"
    if tie.source is OwnershipSource.BEFORE:
        return f"it was {rank}"
    return f"it is {rank}, by {tie.source.value}"


# GPUs that are gone, and those that the driver itself wants reset.

WHEN_LOST = Remedy.REBOOT_NODE
"""What NVIDIA's catalogue asks for when a GPU has fallen off the bus (XID 79: RESTART_BM)."""

WANTS_RESET = ("requires reset", "requires restart")
"""How NVML words NVML_ERROR_RESET_REQUIRED: it is there, and of no use before a reset."""

WANTED = "recovery"
"""Which trouble of a GPU it is that its driver asks for something."""

LOST_FOR_S = 0.5
"""Two readings in a row: nobody is ended for one answer, however plain it is."""


def find_lost_gpus(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """GPUs that do not answer, that are not listed any more, or that never were."""
    for gpu in scene.reading.gpus:
        if gpu.lost:
            yield _lost(gpu, scene, moment)
    listed = {gpu.uuid for gpu in scene.reading.gpus}
    gone = [gpu for uuid, gpu in scene.history.known.items() if uuid not in listed]
    missing = (scene.reading.expected or 0) - len(scene.reading.gpus)
    if missing > 0:
        # Without a shortfall they were taken away on purpose: MIG changed, or a device was moved.
        for gpu in gone[:missing]:
            text = f"the driver lists {len(scene.reading.gpus)} GPUs, and this one no more"
            yield about(gpu, Kind.GPU_LOST, text, 0.9, scene, moment, remedy=WHEN_LOST)
        if missing > len(gone):
            yield _missing(missing - len(gone), scene, moment)


def find_wanted_recoveries(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """GPUs for which the driver asks for more than nothing, with an XID or without."""
    for gpu, _ in scene.answering():
        action = _asked(gpu)
        if action is None:
            continue
        text = f"the driver asks for {action.name}"
        found = about(gpu, Kind.GPU_FAULT, text, 1.0, scene, moment, WANTED, remedy=action.remedy)
        acts = action.ends_work and scene.ownership.is_certain(gpu.uuid)
        yield dataclasses.replace(found, acts=acts)


def since_they_began(
    findings: Iterable[Finding], asked_since: Mapping[str, float]
) -> list[Finding]:
    """The same, where the driver asks for something as old as that is: who could not ask it for a
    moment, or has only just begun to, sees nothing new, and what an attempt was opened in spite of
    ends it no more.

    asked_since: UUID -> since when the driver asks, Unix seconds.
    """
    return [
        dataclasses.replace(one, since_unix_s=min(one.since_unix_s, asked_since[one.gpu]))
        if one.what.endswith(f"-{WANTED}") and one.gpu in asked_since
        else one
        for one in findings
    ]


def _asked(gpu: Gpu) -> RecoveryAction | None:
    """None: for nothing, it is not told, or it is a number that is new to us: that is not guessed
    at."""
    value = gpu.value(Signal.RECOVERY_ACTION)
    return None if value is None or value == NOTHING else ACTIONS.get(int(value))


def _lost(gpu: Gpu, scene: GpuContext, moment: Moment) -> Finding:
    """Sure enough to end its rank, where it is sure which rank that is: it can't go on."""
    known = scene.history.known.get(gpu.uuid, gpu)
    asked = _asked(gpu) or _asked(known)
    usual = Remedy.RESET_GPU if any(text in gpu.lost for text in WANTS_RESET) else WHEN_LOST
    # What does not mend a GPU, as a recovery of its IMEX domain, does not bring one back.
    remedy = asked.remedy if asked is not None and asked.remedy.blames_hardware else usual
    since_s = scene.history.lost_since_s.get(gpu.uuid, scene.reading.read_at_s)
    lasts = scene.reading.read_at_s - since_s >= LOST_FOR_S
    found = about(gpu, Kind.GPU_LOST, gpu.lost, 1.0, scene, moment, remedy=remedy)
    return dataclasses.replace(found, acts=lasts and scene.ownership.is_certain(gpu.uuid))


def _missing(count: int, scene: GpuContext, moment: Moment) -> Finding:
    present = ", ".join(named(gpu) for gpu in scene.reading.gpus) or "none"
    return Finding(
        kind=Kind.GPU_LOST,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=0.9,
        evidence=[f"{scene.reading.expected} GPUs are expected, {count} never showed: {present}"],
        what="missing",
        remedy=WHEN_LOST,
    )


# GPU memory that is failing, or about to: rows and pages taken out of use, and error storms.

REMAPS_MOST = 512
"""Rows remapped for uncorrectable errors: DCGM's health check fails a GPU from here on
(DcgmGPUHardwareLimits.h)."""

PAGES_MOST = 63
"""Retired pages, before Ampere: the table holds 64; DCGM's health check fails from here on."""

DOUBLE_BIT_PAGES_MOST = 15
"""Of those, for uncorrectable errors: DCGM's softer limit."""

STORM_PER_S = 100.0
"""Corrected errors a second. One GPU was reported at 4,600 a second and later 17,700, until the
driver hung without ever reporting an uncorrectable one (NVSentinel issue 1748). DCGM's own limit,
10, is called a dummy value in its source. Between them: a fortieth of the former, and 3,000 errors
in the half minute that it must last, where a healthy GPU counts a handful in weeks."""

WORST_PER_S = 4600.0
"""The first of these figures: a storm like this is surer to end badly, and is saved for anew."""

STORM_S = 30.0
"""It must go on in both halves of this: one bad row that is read through once is no storm."""


def find_failing_memory(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """One finding for each thing that is wrong; none of them ends a rank."""
    for gpu, _ in scene.answering():
        for trouble, text, confidence, remedy in _troubles(gpu):
            yield about(
                gpu, Kind.GPU_MEMORY_FAILING, text, confidence, scene, moment, trouble, remedy
            )


def find_error_storms(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """Corrected errors at a rate that foretells the end."""
    for gpu, track in scene.answering():
        rate = _storm_per_s(track)
        if rate is not None:
            text = f"{rate:,.0f} corrected memory errors a second for {STORM_S:.0f} s"
            sure = 0.95 if rate >= WORST_PER_S else 0.9
            yield about(gpu, Kind.ECC_STORM, text, sure, scene, moment)


def _storm_per_s(track: Track) -> float | None:
    halves = track.halves(Signal.ECC_CORRECTED, STORM_S)
    if halves is None or min(half.per_s for half in halves) < STORM_PER_S:
        return None
    return sum(half.amount for half in halves) / sum(half.seconds for half in halves)


Trouble = tuple[str, str, float, Remedy]
"""Its name, what is told, how sure, what is to be done."""


def _troubles(gpu: Gpu) -> Iterator[Trouble]:
    yield from _remapping(gpu)
    yield from _headroom(gpu)
    yield from _retirement(gpu)
    if gpu.value(Signal.SRAM_THRESHOLD_EXCEEDED):
        # NVIDIA's criterion for a field diagnosis and a return.
        yield "sram", "its SRAM had more errors than it may have", 1.0, Remedy.REPLACE


def _remapping(gpu: Gpu) -> Iterator[Trouble]:
    if gpu.value(Signal.REMAP_FAILURE):
        # The flag, and not XID 64, says that it is for good: a reset may mask that one.
        yield "remap-failure", "a row of memory could not be remapped", 1.0, Remedy.REPLACE
    if gpu.value(Signal.REMAP_PENDING):
        text = "a row of memory is to be remapped, which takes a reset"
        yield "remap-pending", text, 1.0, Remedy.RESET_GPU
    rows = gpu.value(Signal.REMAPPED_UNCORRECTABLE) or 0.0
    if rows >= REMAPS_MOST:
        yield "remaps", f"{rows:.0f} rows were remapped (of {REMAPS_MOST})", 0.9, Remedy.REPLACE


def _headroom(gpu: Gpu) -> Iterator[Trouble]:
    """A bank without spare rows works until its next bad row, which then can't be remapped."""
    none, few = gpu.value(Signal.BANKS_NONE_LEFT) or 0.0, gpu.value(Signal.BANKS_FEW_LEFT) or 0.0
    if none:
        text = f"{none:.0f} memory banks have no spare row left: the next bad one is for good"
        yield "no-spare-rows", text, 0.8, Remedy.NONE
    elif few:
        text = f"{few:.0f} memory banks have hardly a spare row left"
        yield "few-spare-rows", text, 0.5, Remedy.NONE


def _retirement(gpu: Gpu) -> Iterator[Trouble]:
    uncorrectable = gpu.value(Signal.RETIRED_UNCORRECTABLE) or 0.0
    pages = uncorrectable + (gpu.value(Signal.RETIRED_CORRECTABLE) or 0.0)
    if pages >= PAGES_MOST:
        yield "pages", f"{pages:.0f} pages of memory are retired", 0.9, Remedy.REPLACE
    elif uncorrectable > DOUBLE_BIT_PAGES_MOST:
        text = f"{uncorrectable:.0f} pages of memory are retired for uncorrectable errors"
        yield "pages", text, 0.6, Remedy.NONE
    if gpu.value(Signal.RETIREMENT_PENDING):
        text = "a page of memory is to be retired, which takes a reset"
        yield "page-pending", text, 1.0, Remedy.RESET_GPU


# GPUs of this job's ranks on which somebody else computes, or whose memory was left behind.
#
# Told only where pids are counted here as the driver counts them: in a container of its own every
# rank would look like a stranger.

STAYS_S = 10.0
"""Ranks of an attempt that was ended keep their GPUs for seconds, and tools look in for less."""

FILLED_S = 30.0
"""The driver gives memory back after the last process of a GPU is gone, not at the same time."""

SERVANTS = ("nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine", "dcgm")
"""Names that begin so belong to the driver's own services. The kernel cuts names at 15 bytes. With
MPS it is the server, and not the rank, that the driver names."""


def find_shared_gpus(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """Strangers, and what an earlier attempt left."""
    if not _counts_pids_alike(scene.reading, scene.company):
        return
    for gpu, _ in scene.answering():
        if not scene.ownership.of_gpu(gpu.uuid):
            continue
        for user in gpu.users or ():
            yield from _judge(gpu, user, scene, moment)
        yield from _left_behind(gpu, scene, moment)


def _counts_pids_alike(reading: GpuReading, company: GpuUsers) -> bool:
    """In the first namespace it is so; in another where the driver names a rank by its pid."""
    named = {user.pid for gpu in reading.gpus for user in gpu.users or ()}
    return company.sees_all_pids or any(seat.pid in named for seat in company.seats)


def _judge(gpu: Gpu, user: GpuUser, scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    since_s = scene.history.users_since_s.get((gpu.uuid, user.pid), scene.reading.read_at_s)
    process = scene.company.processes.get(user.pid)
    if process is None or scene.reading.read_at_s - since_s < STAYS_S:
        return  # gone by now, or hardly there
    text = _why_foreign(process, scene.company)
    if text:
        size = "" if user.memory_bytes is None else f", with {user.memory_bytes / 2**30:.1f} GiB"
        text = f"{process.name} (pid {user.pid}) computes on it{size}: {text}"
        yield about(gpu, Kind.GPU_SHARED, text, 0.9, scene, moment, f"pid{user.pid}")


def _why_foreign(process: GpuProcess, company: GpuUsers) -> str:
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


def _left_behind(gpu: Gpu, scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    since_s = scene.history.filled_since_s.get(gpu.uuid)
    if since_s is not None and scene.reading.read_at_s - since_s >= FILLED_S:
        size = unclaimed_bytes(gpu) / 2**30
        text = f"{size:.1f} GiB of its memory are in use, and by no process: left behind by a crash"
        yield about(gpu, Kind.GPU_SHARED, text, 0.5, scene, moment, "memory")


# A driver that does not answer: who looks at GPUs is blind, and jobs are likely to hang, too.

CONFIDENCE = 0.9
"""Within its deadline nothing came, twice; a machine that is starved of CPU may do the same."""

WORK = {"poll": "readings of the GPUs", "events": "events of the GPUs"}

NEXT = (
    "ranks may compute on; if it stays so, read `dmesg` there (`nvidia-smi` may hang, too), and "
    "`holdfast node drain` the node before it is rebooted"
)
"""What a person may do. There is no remedy: starved of CPU, a driver that is well is as silent."""


def find_wedged_nvml(machine: MachineReading, moment: Moment) -> Iterator[Finding]:
    """One finding for each of the children that the driver does not answer."""
    readings = None if machine.gpu is None else machine.gpu.silence
    events = None if machine.gpu_events is None else machine.gpu_events.silence
    for silence in (readings, events):
        if silence is not None:
            yield _finding(silence, moment)


def _finding(silence: NvmlSilence, moment: Moment) -> Finding:
    text = f"NVML has not answered for {moment.now_s - silence.since_s:.0f} s: no "
    text += WORK.get(silence.child, silence.child)
    evidence = [text]
    if silence.asking:
        evidence.append(f"it was asked {silence.asking}")
    if silence.stuck:
        evidence.append(f"processes that hang in the driver and can't be killed: {silence.stuck}")
    evidence.append(NEXT)
    since_unix_s = moment.unix_s(silence.since_s)
    return Finding(
        Kind.NVML_WEDGED,
        moment.node,
        since_unix_s,
        CONFIDENCE,
        evidence=evidence,
        what=silence.child,
    )
