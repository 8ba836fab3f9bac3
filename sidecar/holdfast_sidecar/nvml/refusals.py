"""What nvidia-ml-py raised, as a return code; or as a loss, where more than one value is lost."""

from __future__ import annotations

from typing import Any

from holdfast_sidecar.nvml import codes

REFUSED_S = 60.0
"""How long a refusal for good is taken for one. It changes with the driver, a reset, a MIG mode or
a permission, none of which comes each second; to ask the some 20 signals that an older GPU refuses
every time would cost as much as all the others."""


class GpuLostError(Exception):
    """This GPU answers nothing any more, and why."""


class DriverGoneError(Exception):
    """The driver was unloaded or replaced, or every handle is void: begin again."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def code_of(nvml: Any, error: Exception) -> int:
    """The return code behind what nvidia-ml-py raised. Raises as `raise_for` does."""
    code = int(getattr(error, "value", codes.FUNCTION_NOT_FOUND))
    raise_for(nvml, code)
    return code


def raise_for(nvml: Any, code: int) -> None:
    """GpuLostError or DriverGoneError for a code that means the whole GPU or the whole driver."""
    if code in codes.LOST:
        raise GpuLostError(codes.reason(nvml, code))
    if code in codes.DRIVER_GONE:
        raise DriverGoneError(code, codes.reason(nvml, code))


def raise_when_void(nvml: Any, handle: Any) -> None:
    """DriverGoneError when the driver does not know the handle any more."""
    try:
        nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        code = code_of(nvml, error)
        if code == codes.INVALID_ARGUMENT:
            raise DriverGoneError(code, "the handles of the GPUs are void") from None
