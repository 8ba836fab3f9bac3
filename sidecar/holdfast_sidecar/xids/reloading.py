"""Whether a GPU was reset since its last trouble, where no recovery action tells: its count of
energy began anew, as it does when the driver is loaded. Pure.

Drivers before R565 take nothing back, and no other number of theirs shows a reset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from holdfast_sidecar.xids.history import SETTLE_S, History, Mark
from holdfast_sidecar.xids.scene import GpuState

SHARE = 0.5
"""Of what had been counted. A count that began anew is near 0; one that merely came by another way
of asking, or that a GPU in trouble tells wrong by a little, is not."""


def take_energy(history: History, gpus: Mapping[str, GpuState], boot: str) -> History:
    """The history after the GPUs (by PCI address) were read. What a GPU has counted is marked at
    the first reading after its trouble; one that answers no more has no mark: nothing follows."""
    marks, reloaded = dict(history.marks), dict(history.reloaded)
    for pci, gpu in gpus.items():
        newest_s = max((o.last_s for o in history.of(pci) if o.boot == boot), default=None)
        if newest_s is None or not gpu.energy_joules or gpu.read_s <= newest_s + SETTLE_S:
            continue
        mark = marks.get(pci)
        if mark is None or mark.at_s <= newest_s:
            marks[pci] = Mark(gpu.energy_joules, gpu.read_s)
        elif gpu.energy_joules < SHARE * mark.joules:
            marks[pci], reloaded[pci] = Mark(gpu.energy_joules, gpu.read_s), gpu.read_s
    if marks == history.marks:
        return history
    return dataclasses.replace(history, marks=marks, reloaded=reloaded)
