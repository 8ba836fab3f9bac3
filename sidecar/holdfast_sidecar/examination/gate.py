"""Whether a job would take this node in: the health gate's own checks, over readings of now.

What only a job can tell is left out: the clocks of other nodes (`redis_server` looks at one), and
what came of a test.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar.checks import judge_fabric
from holdfast_sidecar.components.gpu.links import LinkMemory, remember_links
from holdfast_sidecar.components.hardware import HardwareAttention
from holdfast_sidecar.components.health_check.checks import (
    CHECKPOINT,
    CHECKS,
    GPU_PROBE,
    Fitness,
    Subject,
    judge_fitness,
)
from holdfast_sidecar.components.host.host import HostProbe
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.rdma import FabricProbe, Selection
from holdfast_sidecar.components.xid.component import XidAttention
from holdfast_sidecar.components.xid.storage import read_boot, read_history
from holdfast_sidecar.config.paths import history_of
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.examination.gpus import Driver
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.linux.kmsg import KernelLog
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.reports import ProbeHealth

OF_A_JOB = ("clock", "test")
"""Checks that have nothing to go by here."""

OUT = "this node would be kept out of a job"


def check_gate(settings: Settings, driver: Driver) -> list[Check]:
    """Look at what the gate looks at, with the settings given."""
    acts = (settings.gate.mode or settings.sidecar.mode) == "act"
    return list(judge(look(settings, driver), acts))


def look(settings: Settings, driver: Driver) -> Fitness:
    """Read what the gate judges by, once."""
    now_s = time.monotonic()
    machine = _read(settings, driver, now_s)
    moment = Moment(now_s, time.time(), "")
    reading = machine.gpu
    links = LinkMemory() if reading is None else remember_links(LinkMemory(), reading.gpus)
    # A port that is not there now counts as one that was not there for as long as it takes.
    later = dataclasses.replace(moment, now_s=now_s + settings.fabric.drop_s)
    findings = [
        *judge_fabric(machine, settings.fabric, later),
        *_find_gpu_faults(machine, settings, moment),
    ]
    return judge_fitness(Subject(machine, settings.gate, findings, links))


def _find_gpu_faults(machine: MachineReading, settings: Settings, moment: Moment) -> list[Finding]:
    """As a sidecar would that starts now: by what is remembered of a day, and the kernel's log."""
    boot = read_boot()
    history = read_history(history_of(settings.paths), boot)
    hardware = HardwareAttention(xids=XidAttention(boot=boot, history=history))
    heard = hardware.hear(machine)
    return hardware.findings(hardware.follow(heard, -1, {}, False, moment), {}, moment)


def judge(fitness: Fitness, acts: bool) -> Iterator[Check]:
    """One check for each thing that is wrong, and for what can't be seen."""
    works = all(trouble.works for trouble in fitness.troubles)
    for trouble in fitness.troubles:
        line = f"{OUT}: {trouble.what}"
        if not acts:
            line = f"{trouble.what}: it would be told, and the node taken in (gate.mode)"
        elif works:
            line += " (where too few others are there it would be taken in all the same)"
        yield Check(f"gate: {trouble.check}", FAIL if acts else WARN, line)
    for name, why in fitness.blind.items():
        yield Check(f"gate: {name}", NOTE, f"can't be checked, and keeps nobody out: {why}")
    if not fitness.troubles:
        passed = [name for name in CHECKS if fitness.passes(name) and name not in OF_A_JOB]
        yield Check("gate", OK, f"this node would be taken into a job ({', '.join(passed)})")


def _read(settings: Settings, driver: Driver, now_s: float) -> MachineReading:
    trees = KernelTrees(settings.paths.machine_root)
    where = settings.checkpoint.dir
    rooms = {CHECKPOINT: Path(where)} if where and "://" not in where else {}
    host = ProbeRunner(HostProbe(rooms, trees, settings.host), every_s=0.0)
    ports = FabricProbe(trees.sys / "class/infiniband", Selection.of(settings.fabric))
    fabric = ProbeRunner(ports, every_s=0.0)
    kernel = ProbeRunner(KernelLog(lambda: None, trees.kernel_log), every_s=0.0)
    reading = driver.reading
    if reading is not None:
        reading = dataclasses.replace(reading, read_at_s=now_s)
    silent = ProbeHealth(GPU_PROBE, False, 1, 0.0, driver.trouble or driver.error)
    read = MachineReading(
        host=host.read(now_s),
        gpu=reading,
        fabric=fabric.read(now_s),
        kernel=kernel.read(now_s),
    )
    kernel.close()
    health = [host.health, fabric.health, *([] if reading is not None else [silent])]
    return dataclasses.replace(read, failing=tuple(one for one in health if not one.is_up))
