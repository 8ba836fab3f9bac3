"""The demonstration: a real job on this machine, real faults, and what Holdfast made of them."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import click

from holdfast_sidecar.cli.demonstration import job, verdict
from holdfast_sidecar.cli.demonstration.job import (
    NODES,
    TRAINING_NODES,
    DemonstrationStopped,
    Event,
    FaultKind,
    Nodes,
    Scenario,
    Workspace,
    open_workspace,
    scenario,
    send_to_rank,
)
from holdfast_sidecar.cli.demonstration.screen import RunProgress, Screen, stage
from holdfast_sidecar.cli.demonstration.verdict import (
    PATIENCE_S,
    DemoVerdict,
    FaultResult,
    Injected,
    find_within,
    judge_fault,
    judge_save,
    look,
    read_stories,
    where,
)
from holdfast_sidecar.cli.tables import BAD, GOOD, paint, table
from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server
from holdfast_sidecar.store.protocol import Store

# Plays the scenario: waits for each event's moment, does it, and waits for what comes of it.

T = TypeVar("T")


@dataclass
class Director:
    """One run of the scenario on nodes that were started already."""

    scenario: Scenario
    nodes: Nodes
    store: Store
    screen: Screen
    checkpoint_command: list[str]
    cluster: Cluster = field(default_factory=Cluster)
    outcomes: list[FaultResult] = field(default_factory=list)

    def play(self) -> None:
        """Every event in turn, then the job's own end; fills `outcomes` as it goes."""
        for event in self.scenario.events:
            self.outcomes.append(self._play_event(event))
        self.wait_for("the job to finish", lambda: self.nodes.are_done() or None)

    def wait_for(self, what: str, find: Callable[[], T | None]) -> T:
        """Look at the job until `find` answers; DemonstrationStopped when it takes too long."""
        if (found := self._find_within(PATIENCE_S, find)) is None:
            raise DemonstrationStopped(f"waited {PATIENCE_S:g} s for {what}")
        return found

    def _play_event(self, event: Event) -> FaultResult:
        moment = f"step {event.at_step}, to {event.kind.value}"
        self.wait_for(moment, lambda: self._is_time_for(event) or None)
        if event.kind is FaultKind.SAVE:
            return self._save(event)
        injected = self._hurt(event)
        # A fault that nobody notices is a row of the table, not the end of the demonstration.
        self._find_within(PATIENCE_S, lambda: self._has_recovered(injected) or None)
        return judge_fault(injected, verdict.incident_of(self.cluster, injected))

    def _is_time_for(self, event: Event) -> bool:
        if self.nodes.are_done():
            raise DemonstrationStopped(f"the job ended before it was time to {event.kind.value}")
        step = verdict.stepping(self.cluster)
        ready = verdict.has_kept_work(self.cluster)
        return ready and step is not None and step >= event.at_step

    def _has_recovered(self, injected: Injected) -> bool:
        incident = verdict.incident_of(self.cluster, injected)
        return incident is not None and incident.recovered_unix_s > 0

    def _hurt(self, event: Event) -> Injected:
        node = verdict.node_of(self.cluster, event.rank)
        pid = verdict.running_ranks(self.cluster)[event.rank].pid
        injected = self._injected(event, node)
        if event.kind is FaultKind.KILL_NODE:
            self.nodes.kill(node)
        elif event.kind is FaultKind.FREEZE_RANK:
            send_to_rank(pid, signal.SIGSTOP)
        else:
            send_to_rank(pid, signal.SIGKILL)
        self.screen.tell(f"→ {event.kind.value}: {where(injected)}, at step {injected.step}")
        return injected

    def _save(self, event: Event) -> FaultResult:
        injected = self._injected(event, "")
        self.screen.tell(f"→ {event.kind.value}, at step {injected.step}")
        asking = subprocess.Popen(
            self.checkpoint_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self._find_within(PATIENCE_S, lambda: asking.poll() is not None or None)
        finally:
            asking.kill()
            answer, refusal = (said.decode(errors="replace") for said in asking.communicate())
        self._look()  # the last look may be older than the answer
        return judge_save(injected, verdict.save_of(self.cluster, answer or refusal))

    def _injected(self, event: Event, node: str) -> Injected:
        plan = self.cluster.plan
        step = verdict.stepping(self.cluster)
        assert plan is not None
        assert step is not None
        return Injected(event, node, step, plan.attempt, time.time())

    def _find_within(self, limit_s: float, find: Callable[[], T | None]) -> T | None:
        return find_within(limit_s, self._look, self.store, find)

    def _look(self) -> None:
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)
        self.screen.show(verdict.progress(self.cluster, "with faults", self.scenario.steps))


# The run that nothing disturbs: its weights are what the other run must reach.

LIMIT_S = 180.0
LOOK_EVERY_S = 0.2

STEP = re.compile(r"^step (\d+) ", re.MULTILINE)


def run_undisturbed(workspace: Workspace, steps: int, screen: Screen) -> str:
    """Run it to its end; answer the SHA-256 of its final weights."""
    log = workspace.log(job.UNDISTURBED)
    with log.open("wb") as output:
        process = subprocess.Popen(
            job.undisturbed_run(workspace, steps),
            env=job.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            screen.show(RunProgress("undisturbed", newest_step(log.read_text("utf-8")), steps))
            time.sleep(LOOK_EVERY_S)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    digest = workspace.weights_hash(job.UNDISTURBED)
    if not digest:
        raise DemonstrationStopped(
            f"the undisturbed run failed (exit code {process.returncode})", log
        )
    return digest


def newest_step(log: str) -> int:
    """The last step that the script printed."""
    steps = STEP.findall(log)
    return int(steps[-1]) if steps else 0


# One whole demonstration: the undisturbed run, then the same training with faults.

JOB = "demo"


def perform(
    scenario: Scenario, workspace: Workspace, screen: Screen, started: float
) -> DemoVerdict:
    """Both runs and the comparison; whatever went wrong is in the verdict."""
    verdict = DemoVerdict((), "", "", 0.0)
    try:
        screen.tell("undisturbed: plain script, plain torchrun, 4 ranks")
        undisturbed = run_undisturbed(workspace, scenario.steps, screen)
        screen.tell(f"its weights: {undisturbed[:16]}…")
        outcomes, problems = _perform_with_faults(scenario, workspace, screen)
        survived = workspace.weights_hash(job.SURVIVED)
        stories = read_stories(workspace, JOB, outcomes)
        verdict = DemoVerdict(tuple(outcomes), undisturbed, survived, 0.0, tuple(problems), stories)
    except DemonstrationStopped as stopped:
        verdict = dataclasses.replace(verdict, problems=(_explain(stopped, screen),))
    return dataclasses.replace(verdict, seconds=time.monotonic() - started)


def _perform_with_faults(
    scenario: Scenario, workspace: Workspace, screen: Screen
) -> tuple[list[FaultResult], list[str]]:
    server = start_server(workspace.server)
    store = open_store(server.settings, JOB, {})
    nodes = Nodes()
    asking = job.ask_for_checkpoint(server.settings, JOB)
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
    command = job.node_of_the_job(workspace, redis, JOB, name, scenario.steps)
    nodes.start(name, command, job.environment(), workspace.log(f"node-{name}"))


# `holdfast demo`: see a real job survive, on this machine, in two minutes.

HEADINGS = (
    "done to the job",
    "to",
    "at step",
    "detected after",
    "culprit",
    "recovered after",
    "steps lost",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs, checkpoints and evidence in this new directory.",
)
@click.pass_context
def demo(context: click.Context, as_json: bool, keep: Path | None) -> None:
    """Train a small GPT on two nodes of this machine, and hurt it.

    Two nodes with two ranks each and a spare node train a character-level GPT on the text of
    Python's own standard library. One rank is killed, one is frozen, a checkpoint is asked for,
    and a whole node is killed. At the end the weights are compared, bit by bit, with those of the
    same training under plain torchrun that nothing disturbed, and `holdfast explain` tells of each
    fault what it knows.

    Exit code 1 when anything failed: not noticed, wrong culprit, not recovered, other weights.
    """
    with stage(keep, as_json) as (shown, started), open_workspace(keep) as workspace:
        verdict = perform(scenario(), workspace, shown, started)
    if as_json:
        click.echo(json.dumps(verdict.as_json(), indent=2))
    else:
        click.echo(page(verdict, keep is not None))
    context.exit(1 if verdict.all_problems else 0)


def page(verdict: DemoVerdict, keeps: bool = False) -> str:
    """The table, the proof, and what Holdfast says of each fault. `keeps`: its files stay."""
    lines = ["", table(HEADINGS, [_row(outcome) for outcome in verdict.outcomes]), ""]
    if verdict.identical:
        proof = "the final weights are bit-identical to those of the undisturbed run"
        lines += [paint(proof, GOOD), f"sha256 {verdict.survived_weights}"]
    elif verdict.survived_weights:
        lines += [
            f"undisturbed  sha256 {verdict.undisturbed_weights}",
            f"with faults  sha256 {verdict.survived_weights}",
        ]
    for story in verdict.stories:
        lines += ["", f"$ holdfast explain {story.incident}", "", story.text or story.problem]
    if verdict.stories and not keeps:
        lines += ["", "the files named here are removed with the rest; --keep DIR keeps them"]
    lines += ["", *(paint(f"failed: {problem}", BAD) for problem in verdict.all_problems)]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _row(outcome: FaultResult) -> list[str]:
    return [
        outcome.event,
        outcome.where,
        str(outcome.step),
        _seconds(outcome.detected_s),
        outcome.culprit,
        _seconds(outcome.recovered_s),
        "-" if outcome.steps_lost is None else str(outcome.steps_lost),
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
