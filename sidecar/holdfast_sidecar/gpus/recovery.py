"""What the driver itself says a GPU needs: field 230, and the value that XID 154 carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.records.findings import Remedy

NOTHING = 0


@dataclass(frozen=True)
class RecoveryAction:
    """One value of NVML's field 230, and whether running work must end for it; otherwise it may
    go on until it ends by itself."""

    name: str
    remedy: Remedy
    ends_work: bool


ACTIONS: Mapping[int, RecoveryAction] = {
    NOTHING: RecoveryAction("nothing", Remedy.NONE, ends_work=False),
    1: RecoveryAction("a reset of the GPU", Remedy.RESET_GPU, ends_work=True),
    2: RecoveryAction("a reboot of the node", Remedy.REBOOT_NODE, ends_work=True),
    3: RecoveryAction("an end of all peer-to-peer work", Remedy.RESTART_APP, ends_work=False),
    4: RecoveryAction("a reset once its work is done", Remedy.RESET_GPU, ends_work=False),
    5: RecoveryAction("a recovery of its IMEX domain", Remedy.NONE, ends_work=False),
    6: RecoveryAction("a reset of its PCIe bus", Remedy.RESET_GPU, ends_work=True),
    7: RecoveryAction("a restart of the whole system", Remedy.REBOOT_NODE, ends_work=True),
}
"""nvmlDeviceGpuRecoveryAction_t (nvml.h). 3: once what uses peers has ended, the driver says what
comes next, often nothing. 4: work that runs is safe. 5: is about other nodes as well, and not about
this GPU (NVIDIA's own driver for Kubernetes leaves such a GPU in service, too)."""


def action_of(value: float) -> RecoveryAction:
    """What it asks for; a value from a newer driver asks for nothing we know, and is told."""
    unknown = f"action {value:.0f}, which is unknown"
    return ACTIONS.get(int(value), RecoveryAction(unknown, Remedy.NONE, ends_work=False))
