"""Asks NVML what it lets us see, and prints that as JSON. Any call may hang for ever: `gpus` runs
this as a process of its own, and leaves it behind if need be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

RECOVERY_ACTION = 230
"""Field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; older versions of nvidia-ml-py have no name for it."""


def calls(nvml: Any) -> dict[str, Callable[[Any], Any]]:
    """What is asked of a GPU, by the name that people know it under."""
    return {
        "utilisation": nvml.nvmlDeviceGetUtilizationRates,
        "memory": nvml.nvmlDeviceGetMemoryInfo,
        "temperature": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
        "power": nvml.nvmlDeviceGetPowerUsage,
        "energy": nvml.nvmlDeviceGetTotalEnergyConsumption,
        "ECC errors": lambda gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0),
        "remapped rows": nvml.nvmlDeviceGetRemappedRows,
        "processes": nvml.nvmlDeviceGetComputeRunningProcesses,
        "PCIe link": nvml.nvmlDeviceGetCurrPcieLinkWidth,
        "recovery action": lambda gpu: ask_field(nvml, gpu, RECOVERY_ACTION),
        "activity (GPM)": lambda gpu: ask_activity(nvml, gpu),
        "XID events": lambda gpu: ask_events(nvml, gpu),
    }


def ask_field(nvml: Any, gpu: Any, number: int) -> None:
    """One field value; its own return code counts."""
    code = nvml.nvmlDeviceGetFieldValues(gpu, [number])[0].nvmlReturn
    if code:
        raise nvml.NVMLError(code)


def ask_activity(nvml: Any, gpu: Any) -> None:
    """Take one sample: to be supported and to be permitted are two things."""
    if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    sample = nvml.nvmlGpmSampleAlloc()
    try:
        nvml.nvmlGpmSampleGet(gpu, sample)
    finally:
        nvml.nvmlGpmSampleFree(sample)


def ask_events(nvml: Any, gpu: Any) -> None:
    """Ask to be told of XIDs."""
    kind = nvml.nvmlEventTypeXidCriticalError
    if not nvml.nvmlDeviceGetSupportedEventTypes(gpu) & kind:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(gpu, kind, events)
    finally:
        nvml.nvmlEventSetFree(events)


def look(nvml: Any) -> dict[str, Any]:
    """Everything; `error` where there is no driver to ask."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": str(error), "is_absent": is_absent(nvml, error)}
    try:
        count = nvml.nvmlDeviceGetCount()
        return {
            "library": nvml.nvmlSystemGetNVMLVersion(),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "gpus": [look_at(nvml, index) for index in range(count)],
        }
    except nvml.NVMLError as error:
        return {"error": str(error), "is_absent": False}


def look_at(nvml: Any, index: int) -> dict[str, str]:
    """What one GPU refuses, with its reasons, by what was asked; all of it where it is lost."""
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return dict.fromkeys(["everything"], str(error))
    refused = {}
    for what, call in calls(nvml).items():
        try:
            call(gpu)
        except nvml.NVMLError as error:
            refused[what] = str(error)
    return refused


def is_absent(nvml: Any, error: Any) -> bool:
    """Whether this is a machine without GPUs rather than one in trouble."""
    return error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)


if __name__ == "__main__":
    import pynvml

    json.dump(look(pynvml), sys.stdout)
