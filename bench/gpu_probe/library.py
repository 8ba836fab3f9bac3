"""nvidia-ml-py on this machine's driver, or why this can't be measured here."""

from __future__ import annotations

from typing import Any

from bench.benchmark import NotRun


def started() -> Any:
    """The module, initialised, on a machine with at least one GPU."""
    try:
        import pynvml
    except ImportError:
        raise NotRun("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise NotRun(f"there is no GPU: {error}") from None
    if not count:
        raise NotRun("there is no GPU: the driver lists none")
    return pynvml
