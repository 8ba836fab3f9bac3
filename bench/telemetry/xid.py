"""From an XID in the driver to the finding: told by NVML's events, read from the sidecar's log."""

from __future__ import annotations

import random
import time

from bench.benchmark import Sample
from bench.telemetry.fakes import WatchedNode
from bench.telemetry.names import GPUS

ROUND = 50
FOUND_WITHIN_S = 5.0
REGISTERED_AFTER_S = 3.0
XIDS = (8, 11, 13, 25, 31, 32, 39, 60, 68, 69, 80)
"""Of applications: they can be told again and again without the node being given up. Each is
raised once on each GPU at most, so that each is a finding of its own."""


def measure() -> list[Sample]:
    """Fifty of them, at moments drawn by chance."""
    dice = random.Random(time.time_ns())
    chosen = dice.sample([(gpu, xid) for gpu in range(GPUS) for xid in XIDS], ROUND)
    with WatchedNode() as node:
        time.sleep(REGISTERED_AFTER_S)
        return [_raise(node, gpu, xid, dice) for gpu, xid in chosen]


def _raise(node: WatchedNode, gpu: int, xid: int, dice: random.Random) -> Sample:
    time.sleep(dice.uniform(0.1, 1.1))  # two ticks
    told = f"xid {xid} of the GPU at {node.fakes.node.pci(gpu)}"
    at_s = time.monotonic()
    node.fakes.nvml.raise_xid(gpu, xid)
    found_s = node.wait_for_line(
        lambda line: "found gpu_fault" in line and told in line, FOUND_WITHIN_S
    )
    return {"gpu": gpu, "xid": xid, "ms": None if found_s is None else (found_s - at_s) * 1e3}
