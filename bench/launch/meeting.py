"""Nodes as threads, all asking for a place at once; prints how long until the last one has it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

from bench.launch.job import free_port
from holdfast_sidecar import __version__
from holdfast_sidecar.coordination.connection import open_store
from holdfast_sidecar.coordination.reports import AgentReport
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rendezvous import HoldfastRendezvous, new_incarnation
from holdfast_sidecar.launcher.reporting import Reporter
from holdfast_sidecar.settings import RedisSettings, Settings

JOIN_LIMIT_S = 60.0


def open_holdfast(nodes: int, url: str, job: str) -> list[RendezvousHandler]:
    """Each node with the threads and connections that its launcher would have."""
    return [_holdfast_node(number, nodes, url, job) for number in range(nodes)]


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
    watch = PlanWatch(open_store(settings.redis, job, os.environ), settings.sidecar.heartbeat_s)
    watch.start()
    reporter.start()
    return HoldfastRendezvous(reporter, watch, job, JOIN_LIMIT_S)


def open_c10d(nodes: int) -> list[RendezvousHandler]:
    """torch's own: the first node serves the store, every node has a connection of its own."""
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    port = free_port()
    handlers = []
    for number in range(nodes):
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


def meet(handlers: list[RendezvousHandler]) -> float:
    """Let all nodes ask at once; seconds until the last was answered."""
    answered: list[float] = []
    ready = threading.Barrier(len(handlers) + 1)

    def ask(join: Callable[[], Any]) -> None:
        ready.wait()
        join()
        answered.append(time.monotonic())

    threads = [
        threading.Thread(target=ask, args=(handler.next_rendezvous,), daemon=True)
        for handler in handlers
    ]
    for thread in threads:
        thread.start()
    ready.wait()
    asked = time.monotonic()
    deadline = asked + JOIN_LIMIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if len(answered) < len(handlers):
        raise SystemExit(f"{len(answered)} of {len(handlers)} nodes found a place")
    return max(answered) - asked


def main(kind: str, nodes: int, *where: str) -> None:
    """Open the nodes, let them meet, print, and leave at once: the threads hold connections."""
    handlers = open_holdfast(nodes, *where) if kind == "holdfast" else open_c10d(nodes)
    print(json.dumps({"milliseconds": 1000 * meet(handlers), "nodes": nodes}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
