"""GPU basics through NVML, loaded only when asked. A machine without a GPU is a normal machine.

A wedged driver may keep an NVML call for ever. So NVML is called in a thread of its own with a
deadline: while a call hangs the reading is stale, that is absent, and the loop goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from holdfast_sidecar.machine import Gpu, GpuReading

DEADLINE_S = 1.0
"""A healthy driver answers all of this within some 10 ms per GPU."""


class NvmlSilentError(Exception):
    """NVML did not answer within the deadline."""


class NvmlFailedError(Exception):
    """NVML answered with an error for the driver as a whole."""


@dataclass
class GpuProbe:
    """Asks `ask` (NVML, or a twin in tests) in a worker thread."""

    ask: Callable[[], GpuReading] = field(default_factory=lambda: Nvml().read)
    deadline_s: float = DEADLINE_S
    name: str = "gpu"
    _questions: queue.SimpleQueue[bool] = field(default_factory=queue.SimpleQueue)
    _answers: queue.SimpleQueue[GpuReading | Exception] = field(default_factory=queue.SimpleQueue)
    _is_asking: bool = False
    _thread: threading.Thread | None = None

    def read(self, now_s: float) -> GpuReading:
        """The GPUs now. NvmlSilentError while NVML is silent, NvmlFailedError when it refuses."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="nvml", daemon=True)
            self._thread.start()
        # A question that hangs is not asked twice: its late answer ends the hang.
        wait_s = 0.0 if self._is_asking else self.deadline_s
        if not self._is_asking:
            self._is_asking = True
            self._questions.put(True)
        try:
            answer = self._answers.get(timeout=wait_s) if wait_s else self._answers.get_nowait()
        except queue.Empty:
            raise NvmlSilentError(f"NVML has not answered within {self.deadline_s:g} s") from None
        self._is_asking = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self) -> None:
        while self._questions.get():
            try:
                self._answers.put(self.ask())
            except Exception as error:  # handed to `read`, so that the probe's runner catches it
                self._answers.put(error)


@dataclass
class Nvml:
    """NVML through pynvml. Imports it at the first reading."""

    load: Callable[[], ModuleType] = field(default_factory=lambda: _import_pynvml)
    _nvml: Any = None
    _is_absent: bool = False

    def read(self) -> GpuReading:
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
        return GpuReading(is_present=True, driver=driver, gpus=gpus)

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
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(ask(lambda: nvml.nvmlDeviceGetName(handle)) or ""),
        pci="" if pci is None else _text(pci.busId),
        busy_ratio=None if rates is None else rates.gpu / 100,
        memory_size_bytes=None if memory is None else int(memory.total),
        memory_used_bytes=None if memory is None else int(memory.used),
        temperature_celsius=ask(
            lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        ),
        power_watts=ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
        power_limit_watts=ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        sm_clock_hertz=ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        ecc_corrected=errors["corrected"],
        ecc_uncorrected=errors["uncorrected"],
        processes=None if processes is None else len(processes),
    )


def _import_pynvml() -> ModuleType:
    import pynvml

    module: ModuleType = pynvml
    return module


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
