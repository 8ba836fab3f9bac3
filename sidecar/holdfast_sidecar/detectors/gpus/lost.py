"""GPUs that are gone, and those that the driver itself wants reset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from holdfast_sidecar.detectors.gpus.naming import about, named
from holdfast_sidecar.gpus.recovery import ACTIONS, NOTHING, RecoveryAction
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu, Signal
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

WHEN_LOST = Remedy.REBOOT_NODE
"""What NVIDIA's catalogue asks for when a GPU has fallen off the bus (XID 79: RESTART_BM)."""

WANTS_RESET = ("requires reset", "requires restart")
"""How NVML words NVML_ERROR_RESET_REQUIRED: it is there, and of no use before a reset."""

WANTED = "recovery"
"""Which trouble of a GPU it is that its driver asks for something."""

LOST_FOR_S = 0.5
"""Two readings in a row: nobody is ended for one answer, however plain it is."""


def find_lost_gpus(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
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


def find_wanted_recoveries(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
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


def _lost(gpu: Gpu, scene: GpuScene, moment: Moment) -> Finding:
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


def _missing(count: int, scene: GpuScene, moment: Moment) -> Finding:
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
