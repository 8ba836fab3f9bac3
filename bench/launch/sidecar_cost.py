"""What a sidecar that watches 8 training ranks costs: processor time, memory, and torch unseen.

Real ranks under `holdfast run`; they sleep most of each step, because 8 busy ones on a small
machine would measure the queue for its cores.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.benchmark import NotRun, Sample
from bench.launch.contestants import FIRST_NODE, HOLDFAST, Scenario
from bench.launch.job import Job
from bench.launch.names import SGD
from bench.launch.steps import steady

RANKS = 8
WATCHED_S = 60.0
LOOK_S = 5.0
START_LIMIT_S = 180.0
SETTLED_STEP = 20
STEP_SLEEP_S = 0.2


def measure() -> list[Sample]:
    """One minute of an undisturbed job."""
    scenario = Scenario(
        run="",
        directory=Path(),
        optimizer=SGD,
        min_nodes=1,
        max_nodes=1,
        ranks_per_node=RANKS,
        sleep_s=STEP_SLEEP_S,
    )
    with Job(HOLDFAST, scenario) as job:
        job.start(FIRST_NODE)
        job.wait_until(lambda seen: steady(seen, RANKS, SETTLED_STEP), START_LIMIT_S, must=True)
        return [{"contestant": HOLDFAST.name, "ranks": RANKS, **_watch(sidecar_of(job))}]


def _watch(sidecar: psutil.Process) -> Sample:
    started, spent = time.monotonic(), cpu_s(sidecar)
    pss_mib: list[float] = []
    while time.monotonic() - started < WATCHED_S:
        time.sleep(LOOK_S)
        pss_mib.append(sum(pss_bytes(one.pid) for one in family(sidecar)) / 2**20)
    elapsed = time.monotonic() - started
    return {
        "core_percent": 100 * (cpu_s(sidecar) - spent) / elapsed,
        "pss_mib": max(pss_mib),
        "torch_mapped": sum(_maps_torch(one.pid) for one in family(sidecar)),
        "watched_s": elapsed,
    }


def sidecar_of(job: Job) -> psutil.Process:
    """The sidecar of a job of one node; NotRun without one."""
    state = job.directory / "state" / "holdfast" / job.scenario.run
    for record in state.glob("*/sidecar.json"):
        return psutil.Process(int(json.loads(record.read_text())["pid"]))
    raise NotRun("the sidecar left no record of itself")


def family(process: psutil.Process) -> Sequence[psutil.Process]:
    """It, and all that it started."""
    return [process, *process.children(recursive=True)]


def cpu_s(process: psutil.Process) -> float:
    """User and system time of it, of children that live, and of those that ended."""
    own = process.cpu_times()
    ended = own.children_user + own.children_system
    children = sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))
    return float(own.user + own.system + ended + children)


def pss_bytes(pid: int) -> int:
    """Resident memory, shared pages by their share."""
    return parse_pss_bytes(Path(f"/proc/{pid}/smaps_rollup").read_text())


def parse_pss_bytes(smaps_rollup: str) -> int:
    """Proportional set size from /proc/PID/smaps_rollup, which counts in KiB (proc(5))."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError("smaps_rollup has no line `Pss:`")


def _maps_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
