"""What is known of the processes of this node's ranks beside their steps. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast_sidecar.components.gpu.history import clock_ratios
from holdfast_sidecar.components.gpu.ownership import Ownership
from holdfast_sidecar.components.host.readings import HostReading
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.stragglers.load import Counts, Surroundings

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def count(looks: Iterable[RankLook], machine: MachineReading) -> dict[int, Counts]:
    """What was counted of each rank's process so far; those that can't be seen are left out."""
    return {
        look.rank: Counts(
            at_s=look.at_s,
            cpu_s=look.process.cpu_ticks / TICKS_PER_S,
            queued_s=None
            if look.process.main_thread_queued_ns is None
            else look.process.main_thread_queued_ns / 1e9,
            throttled_s=machine.throttled_s.get(look.rank),
            major_faults=look.process.major_faults,
        )
        for look in looks
        if look.process is not None
    }


def surround(
    looks: Iterable[RankLook], machine: MachineReading, gpus: Ownership
) -> dict[int, Surroundings]:
    """What is around each rank."""
    storage = storage_share(machine.host)
    clocks = clock_ratios(machine.gpu, gpus)
    return {look.rank: Surroundings(storage, clocks.get(look.rank)) for look in looks}


def storage_share(host: HostReading | None) -> float:
    """Of the latest ten seconds, tasks of this node waited for storage; 0 where nothing tells."""
    pressure = None if host is None else host.pressure.get("io")
    return 0.0 if pressure is None else pressure.waiting_10s_ratio
