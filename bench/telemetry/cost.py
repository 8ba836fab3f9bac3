"""What a sidecar with its children costs that reads eight GPUs and eight RDMA ports each second."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import psutil

from bench.benchmark import NotRun, Sample
from bench.launch.contestants import FIRST_NODE, HOLDFAST, Scenario
from bench.launch.job import Job
from bench.launch.names import SGD
from bench.launch.sidecar_cost import cpu_s, family, pss_bytes, sidecar_of
from bench.launch.steps import steady
from bench.telemetry.fakes import Fakes, WatchedNode
from bench.telemetry.names import ALONE, GPUS
from bench.telemetry.scrape import series

WARMED_UP_S = 10.0
WATCHED_S = 60.0
LOOK_S = 5.0
START_LIMIT_S = 180.0
SETTLED_STEP = 20
STEP_SLEEP_S = 0.2
"""As `bench launch` does: busy ranks on a small machine would measure the queue for its cores."""


def measure(who: str) -> list[Sample]:
    """A minute without any rank, or beside eight that train."""
    return [{"who": who, **(_alone() if who == ALONE else _with_ranks())}]


def _alone() -> Sample:
    with WatchedNode() as node:
        time.sleep(WARMED_UP_S)
        return _watch(node.sidecar)


def _with_ranks() -> Sample:
    scenario = Scenario(
        run="",
        directory=Path(),
        optimizer=SGD,
        min_nodes=1,
        max_nodes=1,
        ranks_per_node=GPUS,
        sleep_s=STEP_SLEEP_S,
    )
    with Job(HOLDFAST, scenario) as job:
        fakes = Fakes(job.directory)
        job.start(FIRST_NODE, fakes.environment, fakes.settings)
        job.wait_until(lambda seen: steady(seen, GPUS, SETTLED_STEP), START_LIMIT_S, must=True)
        sidecar = sidecar_of(job)
        return {**_watch(sidecar), "series": series(_page(sidecar))}


def _page(sidecar: psutil.Process) -> str:
    """What its only server tells."""
    ports = [one.laddr.port for one in sidecar.net_connections("tcp4") if one.status == "LISTEN"]
    if len(ports) != 1:
        raise NotRun(f"the sidecar listens on {len(ports)} ports")
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _watch(sidecar: psutil.Process) -> Sample:
    started, spent = time.monotonic(), cpu_s(sidecar)
    pss_mib, rss_mib = [], []
    while time.monotonic() - started < WATCHED_S:
        time.sleep(LOOK_S)
        pids = [one.pid for one in family(sidecar)]
        pss_mib.append(sum(map(pss_bytes, pids)) / 2**20)
        rss_mib.append(sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**20)
    elapsed = time.monotonic() - started
    return {
        "core_percent": 100 * (cpu_s(sidecar) - spent) / elapsed,
        "pss_mib": max(pss_mib),
        "rss_mib": max(rss_mib),
        "processes": len(pids),
        "watched_s": elapsed,
    }
