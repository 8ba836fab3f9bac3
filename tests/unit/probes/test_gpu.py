from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_sidecar.probes.gpu import GpuProbe, NvmlFailedError
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, GpuUser, Signal


class NVMLError(Exception):
    pass


class LibraryNotFoundError(NVMLError):
    pass


def nvml(**changes: Any) -> Any:
    """A twin of pynvml with one GPU that does not say its power."""

    def refuse(*_: Any) -> Any:
        raise NVMLError("Not Supported")

    known: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVMLError_LibraryNotFound": LibraryNotFoundError,
        "NVMLError_DriverNotLoaded": LibraryNotFoundError,
        "NVML_VOLATILE_ECC": 0,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.1",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetName": lambda handle: "Twin 9000",
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"0000:01:00.0"),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80, used=20),
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=75),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=4711),
            SimpleNamespace(pid=4712),
        ],
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, scope: kind,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 55,
        "nvmlDeviceGetPowerUsage": refuse,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetClockInfo": lambda handle, clock: 1980,
    }
    return SimpleNamespace(**{**known, **changes})


def raiser(error: Exception) -> Any:
    def ask(*_: Any) -> Any:
        raise error

    return ask


def test_a_gpu_is_told_in_base_units_and_what_it_refuses_is_absent() -> None:
    reading = GpuProbe(load=nvml).read(0.0)
    assert (reading.is_present, reading.driver) == (True, "570.1")
    assert reading.gpus == (
        Gpu(
            index=0,
            uuid="GPU-1",
            model="Twin 9000",
            pci="0000:01:00.0",
            values={
                Signal.BUSY: 0.75,
                Signal.MEMORY_SIZE: 80,
                Signal.MEMORY_USED: 20,
                Signal.TEMPERATURE: 55.0,
                Signal.POWER_LIMIT: 700.0,
                Signal.SM_CLOCK: 1.98e9,
                Signal.ECC_UNCORRECTED: 1,
                Signal.ECC_CORRECTED: 0,
                Signal.PROCESSES: 2,
            },
            users=(GpuUser(4711), GpuUser(4712)),
        ),
    )


@pytest.mark.parametrize(
    "load",
    [raiser(ImportError()), lambda: nvml(nvmlInit=raiser(LibraryNotFoundError()))],
    ids=["no library", "no driver"],
)
def test_a_machine_without_a_gpu_is_a_normal_machine(load: Any) -> None:
    asked = GpuProbe(load=load)
    assert asked.read(0.0) == asked.read(0.0) == GpuReading(is_present=False)


def test_a_driver_that_breaks_is_a_failure_and_is_begun_again() -> None:
    broken = iter([raiser(NVMLError("GPU is lost")), lambda: 1])
    inits: list[bool] = []
    twin = nvml(nvmlDeviceGetCount=lambda: next(broken)(), nvmlInit=lambda: inits.append(True))
    asked = GpuProbe(load=lambda: twin)
    with pytest.raises(NvmlFailedError, match="GPU is lost"):
        asked.read(0.0)
    assert len(asked.read(0.0).gpus) == 1
    assert len(inits) == 2
