"""One whole demonstration: the undisturbed run, then the same training with faults."""

from __future__ import annotations

import dataclasses
import time

from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.director import Director
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.outcome import Outcome, Verdict
from holdfast_sidecar.demo.scenario import NODES, TRAINING_NODES, Scenario
from holdfast_sidecar.demo.screen import Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.demo.stories import read_stories
from holdfast_sidecar.demo.undisturbed import run_undisturbed
from holdfast_sidecar.demo.workspace import Workspace
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server

JOB = "demo"


def perform(scenario: Scenario, workspace: Workspace, screen: Screen, started: float) -> Verdict:
    """Both runs and the comparison; whatever went wrong is in the verdict."""
    verdict = Verdict((), "", "", 0.0)
    try:
        screen.tell("undisturbed: plain script, plain torchrun, 4 ranks")
        undisturbed = run_undisturbed(workspace, scenario.steps, screen)
        screen.tell(f"its weights: {undisturbed[:16]}…")
        outcomes, problems = _perform_with_faults(scenario, workspace, screen)
        survived = workspace.weights_hash(programs.SURVIVED)
        stories = read_stories(workspace, JOB, outcomes)
        verdict = Verdict(tuple(outcomes), undisturbed, survived, 0.0, tuple(problems), stories)
    except DemonstrationStopped as stopped:
        verdict = dataclasses.replace(verdict, problems=(_explain(stopped, screen),))
    return dataclasses.replace(verdict, seconds=time.monotonic() - started)


def _perform_with_faults(
    scenario: Scenario, workspace: Workspace, screen: Screen
) -> tuple[list[Outcome], list[str]]:
    server = start_server(workspace.server)
    store = open_store(server.settings, JOB, {})
    nodes = Nodes()
    asking = programs.ask_for_checkpoint(server.settings, JOB)
    director = Director(scenario, nodes, store, screen, asking)
    problems = []
    try:
        for name in NODES[:TRAINING_NODES]:
            _start(nodes, name, workspace, server.settings, scenario)
        screen.tell(f"with faults: holdfast run on nodes {', '.join(NODES)}")
        director.wait_for("the first attempt", lambda: director.cluster.plan)
        # The spare comes last: whoever is there first trains.
        for name in NODES[TRAINING_NODES:]:
            _start(nodes, name, workspace, server.settings, scenario)
        director.play()
    except DemonstrationStopped as stopped:
        problems.append(_explain(stopped, screen))
    finally:
        left = nodes.end()
        store.close()
        server.stop()
    problems += [f"process {process.pid} outlived its launcher" for process in left]
    return director.outcomes, problems


def _explain(stopped: DemonstrationStopped, screen: Screen) -> str:
    for line in stopped.tail:
        screen.tell(f"  | {line}")
    return str(stopped)


def _start(
    nodes: Nodes, name: str, workspace: Workspace, redis: RedisSettings, scenario: Scenario
) -> None:
    command = programs.node_of_the_job(workspace, redis, JOB, name, scenario.steps)
    nodes.start(name, command, programs.environment(), workspace.log(f"node-{name}"))
