"""A driver that stops answering: when it is told, and what the page says meanwhile."""

from __future__ import annotations

import random
import re
import time

from bench.benchmark import NotRun, Sample
from bench.telemetry.fakes import WatchedNode
from holdfast_sidecar.config.settings import GpuSettings

WARMED_UP_S = 5.0
TOLD_WITHIN_S = 30.0
WATCHED_S = 10.0
LOOK_S = 0.5
VALUES = re.compile(r"^holdfast_gpu_(power_watts|busy_ratio|temperature_celsius|sm_clock_hertz)\{")
TICK = re.compile(r"^holdfast_sidecar_last_tick_timestamp_seconds\{[^}]*\} (\S+)$", re.MULTILINE)
CALLS = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates")


def measure() -> list[Sample]:
    """One of its calls hangs for good, from a moment drawn by chance."""
    dice = random.Random(time.time_ns())
    with WatchedNode() as node:
        time.sleep(WARMED_UP_S + dice.random())
        call = dice.choice(CALLS)
        at_s = time.monotonic()
        node.fakes.nvml.hang(call)
        told_s = node.wait_for_line(lambda line: "found nvml_wedged" in line, TOLD_WITHIN_S)
        if told_s is None:
            raise NotRun(f"a hang of {call} was not told within {TOLD_WITHIN_S:g} s")
        ages, values = _watch(node)
        node.fakes.nvml.release()
    return [
        {
            "call": call,
            "told_s": told_s - at_s,
            "late_s": told_s - at_s - GpuSettings().deadline_s,
            "rest_age_s": max(ages),
            "values_told": max(values),
        }
    ]


def _watch(node: WatchedNode) -> tuple[list[float], list[int]]:
    """How old the newest tick is on each page, and how many values of GPUs it tells."""
    ages, values = [], []
    end_s = time.monotonic() + WATCHED_S
    while time.monotonic() < end_s:
        page = node.page()
        found = TICK.search(page)
        ages.append(time.time() - float(found[1]) if found else WATCHED_S)
        values.append(sum(bool(VALUES.match(line)) for line in page.splitlines()))
        time.sleep(LOOK_S)
    return ages, values
