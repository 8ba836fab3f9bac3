"""The driver's own verdict on a GPU: field 230, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.remedy import Remedy


@dataclass(frozen=True)
class Recovery:
    """What the driver asks for, and whether the GPU is of no use until it is done."""

    text: str
    remedy: Remedy
    ends_work: bool
    """False: what runs may go on until it ends, and then it is to be done."""


RECOVERIES: Mapping[int, Recovery] = {
    1: Recovery("GPU reset", Remedy.RESET_GPU, ends_work=True),
    2: Recovery("node reboot", Remedy.REBOOT_NODE, ends_work=True),
    3: Recovery("drain of peer-to-peer work", Remedy.RESTART_APP, ends_work=False),
    4: Recovery("drain and reset", Remedy.RESET_GPU, ends_work=False),
    5: Recovery("recovery of the IMEX domain", Remedy.NONE, ends_work=False),
    6: Recovery("bus reset", Remedy.RESET_GPU, ends_work=True),
    7: Recovery("system reboot", Remedy.REBOOT_NODE, ends_work=True),
}
"""0 is none. A drain lets work end by itself: 3 wants what uses peers to end, and the GPU may be
used again. 5 is about other nodes as well. A number that is not here asks for something that we
do not know, and is not guessed at."""


def recovery_of(number: float | None) -> Recovery | None:
    """What it asks for; None: nothing, or it is not told, or not known."""
    return None if number is None else RECOVERIES.get(int(number))
