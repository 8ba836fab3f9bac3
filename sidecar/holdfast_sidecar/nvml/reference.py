"""Makes the tables of docs/gpus.md: `python -m holdfast_sidecar.nvml.reference`.

Prints them; a test holds the page to them.
"""

from __future__ import annotations

from holdfast_sidecar.components.gpu.nvml import device
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.nvml.signals import EACH_TIME, ONCE, ROWS, name
from holdfast_sidecar.components.gpu.readings import Signal


def signals() -> str:
    """Every signal, from where, and how often it is asked."""
    told = {row.signal: (" else ".join(map(name, row.ways)), _often(row.every_s)) for row in ROWS}
    told.update({one: (f"GPM metric {number}", "each time") for one, number in METRICS.items()})
    told[Signal.PROCESSES] = (device.FUNCTIONS[0], _often(device.EVERY_S))
    lines = [f"| `{one.value}` | {told[one][0]} | {told[one][1]} |" for one in Signal]
    return "\n".join(["| signal | from | asked |", "|---|---|---|", *lines])


def _often(every_s: float) -> str:
    if every_s == EACH_TIME:
        return "each time"
    return "once" if every_s == ONCE else f"every {every_s:g} s"


if __name__ == "__main__":
    print(signals())
