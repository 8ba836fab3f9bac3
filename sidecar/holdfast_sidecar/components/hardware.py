"""Follows the node's hardware from tick to tick: what a reading means takes those before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.checks import since_they_began
from holdfast_sidecar.components.gpu.component import GpuWatch
from holdfast_sidecar.components.gpu.history import GpuContext
from holdfast_sidecar.components.machine import KernelEvents, MachineReading
from holdfast_sidecar.components.xid.checks import find_gpu_faults
from holdfast_sidecar.components.xid.component import Around, XidAttention, look_around
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.findings import Finding, Moment


@dataclass(frozen=True)
class Whose:
    """Whose the GPUs of one scene are: it is the same at every tick until the next reading."""

    scene: GpuContext
    owners: Mapping[str, int]
    sureness: Mapping[str, float]


@dataclass
class HardwareAttention:
    """GPUs and whose they are, what the driver says of their faults, what the kernel's log says."""

    gpus: GpuWatch = field(default_factory=GpuWatch)
    xids: XidAttention = field(default_factory=XidAttention)
    _events: KernelEvents = field(default_factory=KernelEvents)
    _around: Around | None = None
    _of_gpus: list[Finding] = field(default_factory=list)
    _whose: Whose | None = None

    def hear(self, machine: MachineReading) -> MachineReading:
        """The reading, with what the kernel's log came to. At once after it was read: what is told
        but once is known then, even if the tick fails."""
        events = () if machine.gpu_events is None else machine.gpu_events.xids
        self.xids.hear(machine.kernel, events)
        if machine.kernel is None:
            return machine
        self._events = self._events.then(machine.kernel.records)
        return dataclasses.replace(machine, kernel_events=self._events)

    def follow(
        self,
        machine: MachineReading,
        attempt: int,
        ranks: Mapping[int, RankHistory],
        is_going_on: bool,
        moment: Moment,
    ) -> MachineReading:
        """The reading that was heard, with what it comes to. is_going_on: the plan means the ranks
        to run."""
        self._of_gpus = self.gpus.follow(machine.gpu, ranks, moment)
        self._around = look_around(self._around, attempt, ranks, is_going_on, moment)
        if self._whose is None or self._whose.scene is not self.gpus.scene:
            self._whose = Whose(self.gpus.scene, self.gpus.owners(), self.gpus.sureness())
        whose = self._whose
        xids = self.xids.follow(machine.gpu, whose.owners, whose.sureness, self._around)
        return dataclasses.replace(machine, xids=xids)

    def findings(
        self, machine: MachineReading, ranks: Mapping[int, RankHistory], moment: Moment
    ) -> list[Finding]:
        """About GPUs; `machine` as `follow` answered it."""
        of_gpus = since_they_began(self._of_gpus, machine.xids.asked_since)
        return [*of_gpus, *find_gpu_faults(machine.xids, ranks, moment)]
