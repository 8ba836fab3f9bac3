"""Which GPUs this rank trains on, as torch knows them: a small file beside the page.

Written once, when the first optimizer steps. What is not on a GPU by then is asked nothing, so
nothing here ever starts CUDA.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.contract.identity import read_identity
from holdfast.recording.sidecar_files import write_beside


def write_devices(torch: Any, optimizer: Any, path: Path) -> None:
    """Write UUID and PCI address of every GPU that holds parameters of this optimizer."""
    indices = sorted(
        {
            parameter.device.index
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.is_cuda
        }
    )
    if not indices:
        return
    devices = [describe(torch.cuda.get_device_properties(index)) for index in indices]
    write_beside(path, {"process": str(read_identity()), "devices": devices})


def describe(properties: Any) -> dict[str, str]:
    """What torch tells of a GPU; empty where this torch tells it not."""
    bus = getattr(properties, "pci_bus_id", None)
    place = (getattr(properties, "pci_domain_id", 0), bus, getattr(properties, "pci_device_id", 0))
    return {
        "uuid": str(getattr(properties, "uuid", "")),
        "pci": "" if bus is None else "{:04x}:{:02x}:{:02x}.0".format(*place),
    }
