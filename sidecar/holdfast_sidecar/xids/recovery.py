"""What the driver itself says a GPU needs: field 230, and the value that XID 154 carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.remedy import Remedy

NOTHING = 0
DRAIN_AND_RESET = 4


@dataclass(frozen=True)
class RecoveryAction:
    """One value of NVML's field 230."""

    name: str
    remedy: Remedy


ACTIONS: Mapping[int, RecoveryAction] = {
    NOTHING: RecoveryAction("nothing", Remedy.NONE),
    1: RecoveryAction("a reset of the GPU", Remedy.RESET_GPU),
    2: RecoveryAction("a reboot of the node", Remedy.REBOOT_NODE),
    3: RecoveryAction("an end of all peer-to-peer work", Remedy.RESTART_APP),
    DRAIN_AND_RESET: RecoveryAction("a reset once its work is done", Remedy.RESET_GPU),
    5: RecoveryAction("a recovery of its IMEX domain", Remedy.NONE),
    6: RecoveryAction("a reset of its PCIe bus", Remedy.RESET_GPU),
    7: RecoveryAction("a restart of the whole system", Remedy.REBOOT_NODE),
}
"""3: once what uses peers has ended, the driver says what comes next, often nothing. 4: work that
runs is safe. 5: is about other nodes as well, and not about this GPU (NVIDIA's own driver for
Kubernetes leaves such a GPU in service, too)."""


def action_of(value: int) -> RecoveryAction:
    """What it asks for; a value from a newer driver asks for nothing we know, and is told."""
    return ACTIONS.get(value, RecoveryAction(f"action {value}, which is unknown", Remedy.NONE))


def is_urgent(value: int) -> bool:
    """Whether running work must end for it; otherwise the driver waits until it has."""
    return value != DRAIN_AND_RESET and action_of(value).remedy.blames_hardware
