"""Asks NVML what it lets us see, and prints that as JSON. Any call may hang for ever: `gpus` runs
this as a process of its own, and leaves it behind if need be.

It says so before it asks: whatever goes wrong until then is no fault of the driver's.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from holdfast_sidecar.cli.doctor.gpu import BEGUN
from holdfast_sidecar.components.gpu.nvml.device import Devices, NvmlDriverError
from holdfast_sidecar.components.gpu.nvml.gpm import APART_S
from holdfast_sidecar.components.gpu.nvml.wire import spell_reading

NOT_TOLD = "not offered by this driver"


def look(nvml: Any) -> dict[str, Any]:
    """Everything, as the GPU probe will see it; `error` where the driver answers with one, and no
    `gpus` where there is no driver to ask."""
    devices = Devices(nvml)
    try:
        devices.read(0.0)
        time.sleep(2 * APART_S)  # activity is what happened between two samples
        reading = devices.read(1.0)
        if not reading.is_present:
            return {}
        return {
            "library": nvml.nvmlSystemGetNVMLVersion(),
            "driver": reading.driver,
            "reading": spell_reading(reading),
            "gpus": [
                {
                    "lost": gpu.lost,
                    "refused": dict(gpu.refused),
                    "events": "" if gpu.lost else refusal_of_events(nvml, gpu.index),
                }
                for gpu in reading.gpus
            ],
        }
    except (NvmlDriverError, nvml.NVMLError) as error:
        return {"error": str(error)}


def refusal_of_events(nvml: Any, index: int) -> str:
    """Why the driver won't tell of XIDs; empty where it will."""
    kind = nvml.nvmlEventTypeXidCriticalError
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        if not nvml.nvmlDeviceGetSupportedEventTypes(gpu) & kind:
            return NOT_TOLD
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(gpu, kind, events)
        finally:
            nvml.nvmlEventSetFree(events)
    except nvml.NVMLError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    import pynvml

    print(BEGUN, flush=True)
    json.dump(look(pynvml), sys.stdout)
