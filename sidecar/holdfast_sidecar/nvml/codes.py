"""What NVML's return codes mean for whoever asks. The numbers are part of its interface."""

from __future__ import annotations

from typing import Any

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIBRARY_MISMATCH = 18
VERSION_MISMATCH = 25

GARBAGE = -1
"""Ours: the driver said that all is well, and told what can't be."""
UNKNOWN_HERE = -2
"""Ours: the installed nvidia-ml-py has no such function."""

LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED})
"""This GPU answers nothing any more until it is reset; others may go on."""

DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_MISMATCH})
"""The driver was unloaded or replaced: everything must begin again."""

SETTLED = frozenset(
    {
        INVALID_ARGUMENT,
        NOT_SUPPORTED,
        NO_PERMISSION,
        FUNCTION_NOT_FOUND,
        VERSION_MISMATCH,
        22,  # VGPU_ECC_NOT_SUPPORTED
        26,  # DEPRECATED
        UNKNOWN_HERE,
    }
)
"""Asking again soon would bring the same answer: it changes with the driver, with permissions, or
with the GPU's mode. Anything else (busy, no data yet, unknown error) may pass by itself."""

_OWN = {
    GARBAGE: "told what can't be",
    UNKNOWN_HERE: "not known to the installed nvidia-ml-py",
}


def reason(nvml: Any, code: int) -> str:
    """A return code in words."""
    if code in _OWN:
        return _OWN[code]
    return str(nvml.NVMLError(code))
