"""One whole demonstration: fake hardware on two nodes, a real job, and the stories."""

from __future__ import annotations

import subprocess
import time

from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.fake_node import FakeNode, build_node
from holdfast_sidecar.demo.fake_nvml.build import build
from holdfast_sidecar.demo.hardware.director import Director
from holdfast_sidecar.demo.hardware.faults import Faults
from holdfast_sidecar.demo.hardware.outcome import Row, Verdict
from holdfast_sidecar.demo.hardware.scenario import NODES, PORTS, stories
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.screen import Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.demo.workspace import Workspace
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server

JOB = "demo-gpus"
STOP_LIMIT_S = 30.0


def perform(gpus: int, workspace: Workspace, screen: Screen, started: float) -> Verdict:
    """Play them; whatever went wrong is in the verdict."""
    library = build(workspace.root / "lib")
    fakes = {n: build_node(workspace.root / f"machine-{n}", library, gpus, PORTS) for n in NODES}
    server = start_server(workspace.server)
    store = open_store(server.settings, JOB, {})
    nodes = Nodes()
    director = Director(
        stories(gpus), nodes, store, screen, Faults(fakes[NODES[0]], lambda rank: 0)
    )
    director.faults.pid_of = director.pid_of
    problems: list[str] = []
    try:
        screen.tell(f"holdfast run on nodes {', '.join(NODES)}, {gpus} fake GPUs each")
        for name in NODES:
            _start(nodes, name, workspace, server.settings, fakes[name], gpus)
            # The spare comes last: whoever is there first trains.
            director.wait_for("the first attempt", lambda: director.cluster.plan)
        director.play()
        _stop(server.settings)
        director.wait_for("the job to stop", lambda: nodes.are_done() or None)
    except DemonstrationStopped as stopped:
        problems.append(str(stopped))
        for line in stopped.tail:
            screen.tell(f"  | {line}")
    finally:
        director.faults.close()
        left = nodes.end()
        store.close()
        server.stop()
    problems += [f"process {process.pid} outlived its launcher" for process in left]
    rows: list[Row] = director.rows
    return Verdict(tuple(rows), time.monotonic() - started, tuple(problems))


def _start(
    nodes: Nodes, name: str, workspace: Workspace, redis: RedisSettings, fake: FakeNode, gpus: int
) -> None:
    programs.shared_memory(workspace, name).mkdir()
    command = programs.node_on_fakes(workspace, redis, JOB, name, gpus, fake.root)
    environment = {**programs.environment(), **fake.environment}
    nodes.start(name, command, environment, workspace.log(f"node-{name}"))


def _stop(redis: RedisSettings) -> None:
    subprocess.run(
        programs.holdfast("stop", redis, JOB),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=STOP_LIMIT_S,
        check=False,
    )
