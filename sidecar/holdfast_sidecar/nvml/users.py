"""Which processes compute on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.asking import REFUSED_S, code_of
from holdfast_sidecar.readings.gpu import GpuUser

EVERY_S = 5.0
"""The driver walks all its clients for it. Ranks start and end seldom."""

FUNCTIONS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""The second for drivers before 510."""


@dataclass
class Users:
    """One GPU's processes as they were last told; None: the driver does not tell."""

    nvml: Any
    handle: Any
    told: tuple[GpuUser, ...] | None = None
    refusal: str = ""
    _due_s: float = float("-inf")

    def ask(self, now_s: float) -> None:
        """Ask when it is due."""
        if now_s < self._due_s:
            return
        code = codes.FUNCTION_NOT_FOUND
        for name in FUNCTIONS:
            code = self._ask(name)
            if code != codes.FUNCTION_NOT_FOUND:
                break
        is_told = code == codes.SUCCESS
        self._due_s = now_s + (REFUSED_S if code in codes.SETTLED else EVERY_S)
        self.refusal = "" if is_told else f"{name}: {codes.reason(self.nvml, code)}"
        if not is_told:
            self.told = None

    def begin_again(self) -> None:
        """It is due, and nothing is known."""
        self.told, self.refusal, self._due_s = None, "", float("-inf")

    def _ask(self, name: str) -> int:
        function = getattr(self.nvml, name, None)
        if function is None:
            return codes.FUNCTION_NOT_FOUND
        try:
            processes = function(self.handle)
        except self.nvml.NVMLError as error:
            return code_of(self.nvml, error)
        self.told = tuple(
            GpuUser(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory))
            for one in processes
        )
        return codes.SUCCESS
