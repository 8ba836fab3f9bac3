"""Row `signals`: every signal by every way of the first GPU, one call at a time."""

from __future__ import annotations

import time
from typing import Any

from bench.benchmark import Sample, Task
from bench.gpu_probe.library import started
from bench.gpu_probe.names import SIGNALS
from holdfast_sidecar.components.gpu.nvml import calls as codes
from holdfast_sidecar.components.gpu.nvml.calls import NvmlCall
from holdfast_sidecar.components.gpu.nvml.device import Users, read_link_count, read_modes
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS, Activity, FieldBatch
from holdfast_sidecar.components.gpu.nvml.query import Asking, ask_call
from holdfast_sidecar.components.gpu.nvml.signals import ROWS, SignalRow, Way, entries_of, name
from holdfast_sidecar.components.gpu.readings import Signal

CALLS = 100
QUICK_CALLS = 20
SAMPLES_APART_S = 0.2


def measure(calls: int, apart_s: float = SAMPLES_APART_S) -> list[Sample]:
    """One sample per signal and way: the value, or why there is none, and what a call takes."""
    nvml = started()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    links = read_link_count(nvml, handle)
    found = [
        _sample(nvml, handle, row, number, links, calls)
        for row in ROWS
        for number in range(len(row.ways))
    ]
    return [*found, *_activity(nvml, handle, calls, apart_s), *_others(nvml, handle, calls)]


def _sample(nvml: Any, handle: Any, row: SignalRow, number: int, links: int, calls: int) -> Sample:
    way = row.ways[number]
    only = SignalRow(row.signal, (way,), row.every_s, row.least, row.most)
    asking = Asking(nvml, handle, links, (only,))
    asking.ask(0.0)
    return {
        "signal": row.signal.value,
        "way": name(way),
        "rank": number,
        "value": asking.values.get(row.signal),
        "refused": asking.refused.get(row.signal.value, ""),
        "took_s": _times(lambda: _ask(nvml, handle, way, links), calls),
    }


def _ask(nvml: Any, handle: Any, way: Way, links: int) -> None:
    if isinstance(way, NvmlCall):
        ask_call(nvml, handle, way)
    else:
        FieldBatch(nvml, entries_of(way, links)).ask(handle)


def _activity(nvml: Any, handle: Any, calls: int, apart_s: float) -> list[Sample]:
    """Every metric comes from the same two samples and one call."""
    activity = Activity(nvml, handle)
    activity.ask(0.0)
    time.sleep(apart_s)
    activity.ask(SAMPLES_APART_S)
    values, refused = dict(activity.values), dict(activity.refused)
    is_there = bool(values)
    moments = iter(range(1, calls + 1))
    # The same samples again and again, a second apart as far as `Activity` is told.
    took_s = _times(lambda: activity.ask(float(next(moments))), calls) if is_there else []
    activity.close()
    return [
        {
            "signal": signal.value,
            "way": f"GPM metric {metric}, with all the others",
            "rank": 0,
            "value": values.get(signal),
            "refused": refused.get(signal.value, ""),
            "took_s": took_s,
        }
        for signal, metric in METRICS.items()
    ]


def _others(nvml: Any, handle: Any, calls: int) -> list[Sample]:
    users = Users(nvml, handle)
    users.ask(0.0)
    modes = read_modes(nvml, handle)
    return [
        {
            "signal": Signal.PROCESSES.value,
            "way": "nvmlDeviceGetComputeRunningProcesses_v3",
            "rank": 0,
            "value": None if users.told is None else len(users.told),
            "refused": users.refusal,
            "took_s": _times(lambda: Users(nvml, handle).ask(0.0), calls),
        },
        {
            "signal": "modes",
            "way": "nvmlDeviceGet{MigMode,EccMode,PersistenceMode}",
            "rank": 0,
            "value": None,
            "refused": "" if modes.is_ecc_on is not None else codes.reason(nvml, 3),
            "took_s": _times(lambda: read_modes(nvml, handle), calls),
        },
    ]


def _times(call: Any, calls: int) -> list[float]:
    took_s = []
    for _ in range(calls):
        before_s = time.perf_counter()
        call()
        took_s.append(round(time.perf_counter() - before_s, 9))
    return took_s


def tasks(quick: bool) -> list[Task]:
    """One task: the calls are short."""
    calls = QUICK_CALLS if quick else CALLS
    return [Task(SIGNALS, SIGNALS, lambda: measure(calls))]
