"""GPU basics through NVML, loaded only when asked. A machine without a GPU is a normal machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from holdfast_sidecar.readings.gpu import Gpu, GpuReading, GpuUser, Signal


class NvmlFailedError(Exception):
    """NVML answered with an error for the driver as a whole."""


@dataclass
class GpuProbe:
    """Reads NVML through pynvml, imported at the first reading."""

    load: Callable[[], ModuleType] = field(default_factory=lambda: _import_pynvml)
    name: str = "gpu"
    _nvml: Any = None
    _is_absent: bool = False

    def read(self, now_s: float) -> GpuReading:
        """All GPUs; `is_present` False where there is no library or no driver."""
        if self._is_absent or not self._is_ready():
            return GpuReading(is_present=False)
        nvml = self._nvml
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            gpus = tuple(read_gpu(nvml, index, handle) for index, handle in enumerate(handles))
        except nvml.NVMLError as error:
            # After a driver reload every handle is void: begin again at the next reading.
            self._nvml = None
            raise NvmlFailedError(str(error)) from error
        return GpuReading(is_present=True, driver=driver, gpus=gpus, read_at_s=now_s)

    def _is_ready(self) -> bool:
        if self._nvml is not None:
            return True
        try:
            nvml = self.load()
        except ImportError:
            self._is_absent = True
            return False
        try:
            nvml.nvmlInit()
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
            self._is_absent = True
            return False
        except nvml.NVMLError as error:
            raise NvmlFailedError(str(error)) from error
        self._nvml = nvml
        return True


def read_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    """Everything one GPU says; what it refuses is left None."""

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except nvml.NVMLError:
            return None

    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    rates = ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    pci = ask(lambda: nvml.nvmlDeviceGetPciInfo(handle))
    processes = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    errors: Mapping[str, Any] = {
        kind: ask(
            lambda code=code: nvml.nvmlDeviceGetTotalEccErrors(  # type: ignore[misc]
                handle, code, nvml.NVML_VOLATILE_ECC
            )
        )
        for kind, code in (
            ("corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )
    }
    said: dict[Signal, float | None] = {
        Signal.BUSY: None if rates is None else rates.gpu / 100,
        Signal.MEMORY_SIZE: None if memory is None else int(memory.total),
        Signal.MEMORY_USED: None if memory is None else int(memory.used),
        Signal.TEMPERATURE: ask(
            lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        ),
        Signal.POWER: ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
        Signal.POWER_LIMIT: ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        Signal.SM_CLOCK: ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        Signal.ECC_CORRECTED: errors["corrected"],
        Signal.ECC_UNCORRECTED: errors["uncorrected"],
        Signal.PROCESSES: None if processes is None else len(processes),
    }
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(ask(lambda: nvml.nvmlDeviceGetName(handle)) or ""),
        pci="" if pci is None else _text(pci.busId),
        values={signal: value for signal, value in said.items() if value is not None},
        users=None if processes is None else tuple(GpuUser(int(one.pid)) for one in processes),
    )


def _import_pynvml() -> ModuleType:
    import pynvml

    module: ModuleType = pynvml
    return module


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
