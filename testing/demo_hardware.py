"""`holdfast demo --gpus N`: a real job on GPUs that are none, and hardware that fails."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration import verdict as watching
from holdfast_sidecar.cli.demonstration.job import (
    DemonstrationStopped,
    Nodes,
    Workspace,
    open_workspace,
)
from holdfast_sidecar.cli.demonstration.screen import RunProgress, Screen, stage
from holdfast_sidecar.cli.demonstration.verdict import PATIENCE_S, find_within, look
from holdfast_sidecar.cli.tables import BAD, paint, table
from holdfast_sidecar.components.gpu.readings import Signal
from holdfast_sidecar.config.settings import EXIT_CODE, BadInput, RedisSettings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import start_server
from holdfast_sidecar.store.protocol import Store
from testing.fake_node import ACTIVE, DOWN, FakeNode, build_node
from testing.fake_nvml.driver import CompilerMissingError, build
from testing.fake_nvml.layout import MOST_GPUS

# What happens to the hardware, in which order, and what Holdfast should make of each.

NODES = ("a", "b")
"""The first one trains, the other one is the spare."""
PORTS = 8
NEVER_STEPS = 1_000_000
"""No periodic checkpoints: those that are made are made for a finding."""
STEPS_LEFT = 30
"""The job ends so many steps after the last story: long enough to see that it goes on."""


class Fault(str, Enum):
    """What becomes of the hardware of the training node."""

    LINK_FLAP = "a link flaps"
    HEAT = "a GPU gets too hot"
    WEDGE = "NVML hangs"
    ECC_STORM = "a storm of corrected errors"
    XID_79 = "XID 79: it falls off the bus"


@dataclass(frozen=True)
class Story:
    """One fault, and what is right to say and to do about it."""

    fault: Fault
    gpu: int
    """Index of the GPU that is hurt; -1: it is not about one."""
    finding: Kind
    blinds: bool = False
    """While it lasts nothing else of the GPUs is seen: the next story waits for its end."""
    is_saved: bool = False
    """The job is to be saved before worse comes."""
    ends_attempt: bool = False
    """The node is to be given up, and the spare to take its place."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Whom it is to be tied to: GPU n is rank n's here."""
        return () if self.gpu < 0 else (self.gpu,)


def stories(gpus: int) -> tuple[Story, ...]:
    """From harmless to fatal; the storm and the XID hit one GPU, as they do in the field."""
    hot, failing = min(3, gpus - 1), min(5, gpus - 1)
    return (
        Story(Fault.LINK_FLAP, -1, Kind.LINK_FLAPPING),
        Story(Fault.HEAT, hot, Kind.GPU_THROTTLED),
        Story(Fault.WEDGE, -1, Kind.NVML_WEDGED, blinds=True),
        Story(Fault.ECC_STORM, failing, Kind.ECC_STORM, is_saved=True),
        Story(Fault.XID_79, failing, Kind.GPU_FAULT, ends_attempt=True),
    )


# Does it to the fake hardware: each fault as its signals show it on real GPUs.

PORT = "mlx5_2"
FLAP_S = 2.5
"""Longer than two looks at the port, far shorter than what makes a link lost."""
BEAT_S = 0.1
HOT_SHARE = 0.7
"""Of the time the GPU's clock is held down by its heat."""
STORM_PER_S = 6000.0
"""Corrected errors; a report from the field tells of 4,600 a second before the GPU was lost."""
FALLEN_XID = 79
SEEN_S = 2.5
"""The driver is asked once a second which processes use a GPU."""


@dataclass
class Hurt:
    """A fault that goes on until `heal`."""

    heal: Callable[[], None] = lambda: None


@dataclass
class Faults:
    """What is done to one node. `pid_of` finds the process of a rank."""

    node: FakeNode
    pid_of: Callable[[int], int]
    _users: list[int] = field(default_factory=list)
    _stops: list[threading.Event] = field(default_factory=list)

    def tell_users(self, gpus: int) -> None:
        """Let the driver name rank n's process on GPU n, as it does for ranks that use CUDA, and
        let that be seen: no rank is ended for a GPU that is only guessed to be its own."""
        users = [self.pid_of(gpu) for gpu in range(gpus)]
        if users == self._users:
            return
        for gpu, pid in enumerate(users):
            self.node.nvml.users(gpu, [pid])
        self._users = users
        threading.Event().wait(SEEN_S)

    def begin(self, fault: Fault, gpu: int) -> Hurt:
        """Let it happen; some of it goes on in a thread that ends by itself after `heal`."""
        begin = {
            Fault.LINK_FLAP: self._flap,
            Fault.HEAT: self._heat,
            Fault.WEDGE: self._wedge,
            Fault.ECC_STORM: self._storm,
            Fault.XID_79: self._fall,
        }[fault]
        return begin(gpu)

    def close(self) -> None:
        """End what still goes on."""
        for stop in self._stops:
            stop.set()

    def _flap(self, _gpu: int) -> Hurt:
        self.node.sysfs.set_state(PORT, DOWN)
        up = threading.Timer(FLAP_S, lambda: self.node.sysfs.set_state(PORT, ACTIVE))
        up.daemon = True
        up.start()
        return Hurt()

    def _heat(self, gpu: int) -> Hurt:
        nvml, pid = self.node.nvml, self.pid_of(gpu)
        usual_clock = nvml.get(gpu, Signal.SM_CLOCK_MOST)
        usual_margin = nvml.get(gpu, Signal.TEMPERATURE_MARGIN)
        nvml.set(gpu, Signal.TEMPERATURE_MARGIN, 0)
        nvml.set(gpu, Signal.SM_CLOCK, 0.4 * usual_clock)

        def beat() -> None:
            nvml.add(gpu, Signal.THROTTLED_HARDWARE_THERMAL, HOT_SHARE * BEAT_S)
            _pause(pid, BEAT_S / 2)  # a slow GPU keeps its rank waiting

        def heal() -> None:
            nvml.set(gpu, Signal.TEMPERATURE_MARGIN, usual_margin)
            nvml.set(gpu, Signal.SM_CLOCK, usual_clock)

        return self._go_on(beat, heal)

    def _wedge(self, _gpu: int) -> Hurt:
        self.node.nvml.hang("nvmlDeviceGetFieldValues")
        return Hurt(self.node.nvml.release)

    def _storm(self, gpu: int) -> Hurt:
        grow = STORM_PER_S * BEAT_S
        return self._go_on(lambda: self.node.nvml.add(gpu, Signal.ECC_CORRECTED, grow))

    def _fall(self, gpu: int) -> Hurt:
        self.node.nvml.raise_xid(gpu, FALLEN_XID)
        self.node.nvml.lose(gpu)
        with suppress(ProcessLookupError):
            os.kill(self.pid_of(gpu), signal.SIGSTOP)  # its kernels never end
        return Hurt()

    def _go_on(self, beat: Callable[[], None], heal: Callable[[], None] = lambda: None) -> Hurt:
        stop = threading.Event()
        self._stops.append(stop)

        def run() -> None:
            while not stop.wait(BEAT_S):
                beat()
            heal()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            thread.join()

        return Hurt(end)


def _pause(pid: int, seconds: float) -> None:
    """Keep a process from running for a while."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(seconds)
        os.kill(pid, signal.SIGCONT)


# What became of each story, by the system's own records, and whether that is right.


@dataclass(frozen=True)
class Done:
    """A story as it was played: times are this machine's wall clock."""

    story: Story
    node: str
    step: int
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class Seen:
    """What Holdfast recorded of it."""

    finding: Finding | None = None
    found_unix_s: float = 0.0
    saved: LedgerEntry | None = None
    incident: Incident | None = None
    plan: Plan | None = None
    """As it was when everything had been seen."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    fault: str
    step: int
    told_s: float | None
    told_as: str
    tied_to: str
    done: str
    problems: tuple[str, ...] = ()
    incident: str = ""


@dataclass(frozen=True)
class Verdict:
    """The whole demonstration."""

    rows: tuple[Row, ...]
    seconds: float
    problems: tuple[str, ...] = ()

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Everything that failed, one line each; empty when all went well."""
        return self.problems + tuple(f"{r.fault}: {p}" for r in self.rows for p in r.problems)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        problems = list(self.all_problems)
        return {**dataclasses.asdict(self), "problems": problems, "ok": not problems}


def judge(done: Done, seen: Seen) -> Row:
    """Compare what was done with what was told and what came of it."""
    finding = seen.finding
    if finding is None:
        return Row(done.story.fault.value, done.step, None, "-", "-", "-", ("was never told",))
    problems = [*_wrong_name(done.story, finding), *_wrong_deed(done, seen)]
    return Row(
        fault=done.story.fault.value,
        step=done.step,
        told_s=seen.found_unix_s - done.at_unix_s,
        told_as=finding.kind.value,
        tied_to=_whom(done.node, finding.ranks),
        done=_deed(done, seen),
        problems=tuple(problems),
        incident="" if seen.incident is None else seen.incident.identifier,
    )


def _wrong_name(story: Story, finding: Finding) -> list[str]:
    if tuple(finding.ranks) == story.ranks:
        return []
    return [f"tied to ranks {finding.ranks}, should be {list(story.ranks)}"]


def _wrong_deed(done: Done, seen: Seen) -> list[str]:
    story, incident = done.story, seen.incident
    problems = []
    if story.is_saved and seen.saved is None:
        problems.append("no checkpoint was made for it")
    if not story.ends_attempt:
        return [*problems, *(["the job was restarted for it"] if incident is not None else [])]
    if incident is None:
        return [*problems, "the job was not taken off it"]
    if incident.culprit_node != done.node or tuple(incident.culprit_ranks) != story.ranks:
        problems.append(f"blamed {_whom(incident.culprit_node, incident.culprit_ranks)}")
    if not incident.recovered_unix_s:
        problems.append("did not recover")
    if seen.plan is not None and any(m.node == done.node for m in seen.plan.members):
        problems.append(f"node {done.node} still trains")
    return problems


def _deed(done: Done, seen: Seen) -> str:
    if seen.incident is not None:
        nodes = ", ".join(m.node for m in seen.plan.members) if seen.plan else "?"
        lost = seen.incident.step_reached - seen.incident.step_resumed
        return f"goes on with node {nodes}, {lost} steps again"
    if seen.saved is not None:
        return f"saved step {seen.saved.step}"
    return "told only, training goes on"


def _whom(node: str, ranks: Sequence[int]) -> str:
    if not ranks:
        return f"node {node}"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(map(str, ranks))} on {node}"


# What Holdfast has recorded of a story so far. Pure: a cluster in, an answer out.


def find(cluster: Cluster, done: Done, before: Seen, now_unix_s: float) -> Seen:
    """What is known now; a finding that was seen stays seen."""
    finding = before.finding or _finding(cluster, done)
    return dataclasses.replace(
        before,
        finding=finding,
        found_unix_s=before.found_unix_s or (now_unix_s if finding is not None else 0.0),
        saved=before.saved or _saved(cluster, done),
        incident=_incident(cluster, done),
        plan=cluster.plan,
    )


def is_settled(done: Done, seen: Seen) -> bool:
    """Whether all has come that should, or something that should not."""
    return not missing(done, seen)


def missing(done: Done, seen: Seen) -> str:
    """What is still to come, for people; empty when nothing is waited for any more."""
    story = done.story
    if seen.finding is None:
        return f"{story.fault.value} to be told"
    if story.ends_attempt:
        is_over = seen.incident is not None and seen.incident.recovered_unix_s > 0
        return "" if is_over else f"the job to go on without node {done.node}"
    if story.is_saved and seen.saved is None and seen.incident is None:
        return f"a checkpoint for {story.fault.value}"
    return ""


def is_over(cluster: Cluster, done: Done) -> bool:
    """Whether the node tells of it no more."""
    return _finding(cluster, done) is None


def _finding(cluster: Cluster, done: Done) -> Finding | None:
    node = cluster.nodes.get(done.node)
    found = [] if node is None else node.findings
    return next((one for one in found if one.kind is done.story.finding), None)


def _saved(cluster: Cluster, done: Done) -> LedgerEntry | None:
    """The checkpoint that was made for it."""
    asked = f"{done.story.finding.value}"
    entries = (e for e in cluster.ledger.values() if any(n.startswith(asked) for n in e.answers))
    return next(iter(entries), None)


def _incident(cluster: Cluster, done: Done) -> Incident | None:
    """The incident that ended the attempt in which it was done."""
    found = (i for i in cluster.incidents.values() if i.attempt == done.attempt and i.decided)
    return max(found, key=lambda one: one.detected_unix_s, default=None)


# Plays the stories: hurts the hardware, and waits for what Holdfast makes of it.

T = TypeVar("T")

SETTLED_STEP = 10
"""Before this nothing is done: what a rank usually takes is not known yet."""


@dataclass
class Director:
    """One run of the stories on nodes that were started already."""

    stories: tuple[Story, ...]
    nodes: Nodes
    store: Store
    screen: Screen
    faults: Faults
    cluster: Cluster = field(default_factory=Cluster)
    rows: list[Row] = field(default_factory=list)
    awaited: str = ""
    """What it waits for now."""

    def play(self) -> None:
        """Every story in turn, then a while of the job's own; fills `rows` as it goes."""
        self.wait_for("the first steps", lambda: self._has_stepped(SETTLED_STEP) or None)
        for story in self.stories:
            self.rows.append(self._play(story))
        at = watching.stepping(self.cluster) or 0
        self.wait_for("further steps", lambda: self._has_stepped(at + STEPS_LEFT) or None)

    def pid_of(self, rank: int) -> int:
        """Process of a rank of the running attempt."""
        return watching.running_ranks(self.cluster)[rank].pid

    def wait_for(self, what: str, search: Callable[[], T | None]) -> T:
        """Look at the job until `search` answers; DemonstrationStopped when it takes too long."""
        self.awaited = what
        if (found := self._find_within(PATIENCE_S, search)) is None:
            raise DemonstrationStopped(f"waited {PATIENCE_S:g} s for {what}")
        return found

    def _play(self, story: Story) -> Row:
        self.wait_for("every rank to step", lambda: watching.stepping(self.cluster))
        self.faults.tell_users(len(watching.running_ranks(self.cluster)))
        done = self._begin(story)
        hurt = self.faults.begin(story.fault, story.gpu)
        seen: list[Seen] = [Seen()]
        self.awaited = missing(done, seen[0])

        def settled() -> bool | None:
            seen[0] = find(self.cluster, done, seen[0], time.time())
            self.awaited = missing(done, seen[0])
            return is_settled(done, seen[0]) or None

        self._find_within(PATIENCE_S, settled)
        hurt.heal()
        if story.blinds:
            self.awaited = f"the end of {story.fault.value}"
            self._find_within(PATIENCE_S, lambda: is_over(self.cluster, done) or None)
        return judge(done, find(self.cluster, done, seen[0], time.time()))

    def _begin(self, story: Story) -> Done:
        plan = self.cluster.plan
        assert plan is not None
        step = watching.stepping(self.cluster) or 0
        where = f"GPU {story.gpu} of node {NODES[0]}" if story.ranks else f"node {NODES[0]}"
        self.screen.tell(f"→ {story.fault.value}: {where}, at step {step}")
        return Done(story, NODES[0], step, plan.attempt, time.time())

    def _has_stepped(self, to: int) -> bool:
        step = watching.stepping(self.cluster)
        return step is not None and step >= to

    def _find_within(self, limit_s: float, search: Callable[[], T | None]) -> T | None:
        return find_within(limit_s, self._look, self.store, search)

    def _look(self) -> None:
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)
        self.screen.show(self._progress())

    def _progress(self) -> RunProgress:
        done, all_of_them = len(self.rows), len(self.stories)
        step = watching.stepping(self.cluster)
        at = "no rank steps yet" if step is None else f"at step {step}"
        said = f"{done} of {all_of_them} stories done, {at}, waiting for {self.awaited}"
        shown = watching.progress(self.cluster, "on fake GPUs", 0)
        details = (f"waiting for {self.awaited}", *shown.details)
        return RunProgress(f"{done} of {all_of_them} stories", done, all_of_them, details, said)


# One whole demonstration: fake hardware on two nodes, a real job, and the stories.

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
    job.shared_memory(workspace, name).mkdir()
    command = job.node_on_fakes(workspace, redis, JOB, name, gpus, fake.root)
    environment = {**job.environment(), **fake.environment}
    nodes.start(name, command, environment, workspace.log(f"node-{name}"))


def _stop(redis: RedisSettings) -> None:
    subprocess.run(
        job.holdfast("stop", redis, JOB),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=STOP_LIMIT_S,
        check=False,
    )


# `python -m testing.demo_hardware`: the stories on a terminal.

HEADINGS = ("done to the hardware", "at step", "told after", "as", "tied to", "and")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; progress on stderr.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep logs and evidence in this new directory.",
)
@click.option(
    "--gpus",
    metavar="N",
    type=click.IntRange(1, MOST_GPUS),
    default=8,
    show_default=True,
    help="Fake GPUs, and ranks, per node.",
)
@click.pass_context
def hardware(context: click.Context, as_json: bool, keep: Path | None, gpus: int) -> None:
    """Train on fake GPUs, and let the hardware fail.

    A node trains with a rank on each GPU, each of which is a fake: a driver's library in C that
    the real nvidia-ml-py loads, and a /sys of its own with RDMA ports. A link flaps, a GPU gets
    too hot, NVML hangs, a GPU counts a storm of corrected errors and then falls off the bus. Each
    is told, tied to its rank, and acted on; a spare node takes over in the end.

    Exit code 1 when anything failed.
    """
    with stage(keep, as_json) as (shown, started), open_workspace(keep, NEVER_STEPS) as workspace:
        try:
            verdict = perform(gpus, workspace, shown, started)
        except CompilerMissingError as error:
            raise BadInput(f"the fake GPUs are compiled here: {error}") from None
    click.echo(json.dumps(verdict.as_json(), indent=2) if as_json else page(verdict))
    context.exit(1 if verdict.all_problems else 0)


def page(verdict: Verdict) -> str:
    """What was done to the hardware, and what Holdfast made of it."""
    rows = [
        [r.fault, str(r.step), _seconds(r.told_s), r.told_as, r.tied_to, r.done]
        for r in verdict.rows
    ]
    lines = ["", table(HEADINGS, rows), ""]
    lines += [paint(f"failed: {problem}", BAD) for problem in verdict.all_problems]
    return "\n".join([*lines, f"{verdict.seconds:.0f} s in all"])


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


if __name__ == "__main__":
    try:
        hardware()
    except BadInput as error:
        click.echo(f"holdfast: {error}", err=True)
        sys.exit(EXIT_CODE)
