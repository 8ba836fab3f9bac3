"""Nodes as threads that ask for a place at a given moment; prints when the last one had it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

from holdfast_sidecar import __version__
from holdfast_sidecar.config.settings import RedisSettings, Settings
from holdfast_sidecar.launcher.ownership import new_incarnation
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.launcher.rendezvous import HoldfastRendezvous
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.connection import open_store

JOIN_LIMIT_S = 60.0


def open_holdfast(numbers: range, nodes: int, url: str, job: str) -> list[RendezvousHandler]:
    """Each node with the threads and connections that its launcher would have."""
    return [_holdfast_node(number, nodes, url, job) for number in numbers]


def _holdfast_node(number: int, nodes: int, url: str, job: str) -> HoldfastRendezvous:
    settings = Settings(redis=RedisSettings(url=url, timeout_s=10.0))
    report = AgentReport(
        node=f"n{number}",
        incarnation=f"{new_incarnation()}-{number}",
        state="left",
        attempt=-1,
        beat=0,
        slots=1,
        address="127.0.0.1",
        min_nodes=nodes,
        max_nodes=nodes,
        version=__version__,
        torch_version=torch.__version__,
        pid=os.getpid(),
    )
    reporter = Reporter(
        open_store(settings.redis, job, os.environ), report, settings.sidecar.heartbeat_s
    )
    watch = PlanWatch(
        open_store(settings.redis, job, os.environ, hears_reports=False),
        settings.sidecar.heartbeat_s,
    )
    watch.start()
    return HoldfastRendezvous(reporter, watch, job, JOIN_LIMIT_S)


def open_c10d(numbers: range, nodes: int, port: str) -> list[RendezvousHandler]:
    """torch's own: the first node serves the store, every node has a connection of its own."""
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    handlers = []
    for number in numbers:
        parameters = RendezvousParameters(
            backend="c10d",
            endpoint=f"127.0.0.1:{port}",
            run_id="bench",
            min_nodes=nodes,
            max_nodes=nodes,
            is_host=int(number == 0),
            join_timeout=int(JOIN_LIMIT_S),
        )
        backend, store = create_backend(parameters)
        handlers.append(create_handler(store, backend, parameters))
    return handlers


def meet(handlers: list[RendezvousHandler], at_ns: int) -> int:
    """Let all nodes ask at this moment; when the last was answered."""
    answered: list[int] = []

    def ask(join: Callable[[], Any]) -> None:
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        join()
        answered.append(time.monotonic_ns())

    threads = [
        threading.Thread(target=ask, args=(handler.next_rendezvous,), daemon=True)
        for handler in handlers
    ]
    for thread in threads:
        thread.start()
    deadline_ns = at_ns + round(JOIN_LIMIT_S * 1e9)
    for thread in threads:
        thread.join(max(0, deadline_ns - time.monotonic_ns()) / 1e9)
    if len(answered) < len(handlers):
        raise SystemExit(f"{len(answered)} of {len(handlers)} nodes found a place")
    return max(answered)


def main(kind: str, first: int, last: int, nodes: int, *where: str) -> None:
    """Open these nodes, say so, meet when told, and stay: others may still need our store."""
    opened = (open_holdfast if kind == "holdfast" else open_c10d)(range(first, last), nodes, *where)
    print("ready", flush=True)
    print(meet(opened, int(sys.stdin.readline())), flush=True)
    sys.stdin.read()  # until the parent has heard from all
    os._exit(0)  # not waiting for threads that hold connections


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:5]), *sys.argv[5:])  # type: ignore[arg-type]
