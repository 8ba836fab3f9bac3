"""What became of each event, by the system's own records, and the verdict on the whole."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.contract import environment as names
from holdfast_sidecar.cli.demonstration import job as programs
from holdfast_sidecar.cli.demonstration.job import (
    DemonstrationStopped,
    Event,
    FaultKind,
    Nodes,
    Workspace,
)
from holdfast_sidecar.cli.demonstration.screen import RunProgress, Screen
from holdfast_sidecar.policy.checkpoint_schedule import snapshot_reports
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.protocol import Store, StoreUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Injected:
    """An event as it was carried out. `node` is where; times are this machine's wall clock."""

    event: Event
    node: str
    step: int
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class FaultResult:
    """One row of the table. Seconds count from the injection; None when it never came."""

    event: str
    where: str
    step: int
    detected_s: float | None
    culprit: str
    recovered_s: float | None
    steps_lost: int | None
    problems: tuple[str, ...] = ()
    incident: str = ""
    """Under which Holdfast recorded it."""


@dataclass(frozen=True)
class IncidentText:
    """What `holdfast explain` says of an incident, or why it says nothing."""

    incident: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class DemoVerdict:
    """The whole demonstration."""

    outcomes: tuple[FaultResult, ...]
    undisturbed_weights: str
    survived_weights: str
    seconds: float
    problems: tuple[str, ...] = ()
    stories: tuple[IncidentText, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether both runs ended with the same bits."""
        return bool(self.survived_weights) and self.survived_weights == self.undisturbed_weights

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Everything that failed, one line each; empty when all went well."""
        of_events = tuple(f"{o.event}: {p}" for o in self.outcomes for p in o.problems)
        weights = () if self.identical or self.problems else ("the final weights differ",)
        untold = tuple(f"incident {s.incident}: {s.problem}" for s in self.stories if s.problem)
        return self.problems + of_events + weights + untold

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            **dataclasses.asdict(self),
            "identical": self.identical,
            "problems": list(self.all_problems),
            "ok": not self.all_problems,
        }


def judge_fault(injected: Injected, incident: Incident | None) -> FaultResult:
    """Compare what was done with what Holdfast recorded about it."""
    event = injected.event
    if incident is None:
        return _row(injected, culprit="-", problems=("was never noticed",))
    recovered = incident.recovered_unix_s > 0
    problems = []
    if incident.cause not in event.causes:
        problems.append(f"called {incident.cause}, should be {' or '.join(event.causes)}")
    if tuple(incident.culprit_ranks) != event.hurt or incident.culprit_node != injected.node:
        problems.append(f"blamed {name_culprit(incident)}, was {where(injected)}")
    if not recovered:
        problems.append("did not recover")
    return _row(
        injected,
        detected_s=incident.detected_unix_s - injected.at_unix_s,
        culprit=f"{name_culprit(incident)} ({incident.cause})",
        recovered_s=incident.recovered_unix_s - injected.at_unix_s if recovered else None,
        steps_lost=incident.step_reached - incident.step_resumed if recovered else None,
        problems=tuple(problems),
        incident=incident.identifier,
    )


def judge_save(injected: Injected, entry: LedgerEntry | str) -> FaultResult:
    """The checkpoint that was asked for: in the ledger, or why not."""
    if isinstance(entry, str):
        return _row(injected, culprit="-", problems=(f"no checkpoint was completed: {entry}",))
    return _row(
        injected,
        culprit=f"saved step {entry.step}",
        recovered_s=entry.at_unix_s - injected.at_unix_s,
        steps_lost=0,
    )


def name_culprit(incident: Incident) -> str:
    """Who an incident blames, in words."""
    return _name(incident.culprit_node, incident.culprit_ranks)


def where(injected: Injected) -> str:
    """Who was hurt, in words."""
    if injected.event.kind is FaultKind.SAVE:
        return "all ranks"
    return _name(injected.node, injected.event.hurt)


def _name(node: str, ranks: Sequence[int]) -> str:
    if not ranks:
        return f"node {node}" if node else "nobody"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(str(rank) for rank in ranks)} on {node}"


def _row(
    injected: Injected,
    culprit: str,
    detected_s: float | None = None,
    recovered_s: float | None = None,
    steps_lost: int | None = None,
    problems: tuple[str, ...] = (),
    incident: str = "",
) -> FaultResult:
    return FaultResult(
        event=injected.event.kind.value,
        where=where(injected),
        step=injected.step,
        detected_s=detected_s,
        culprit=culprit,
        recovered_s=recovered_s,
        steps_lost=steps_lost,
        problems=problems,
        incident=incident,
    )


# What the demonstration looks for in the job's records. Pure: a cluster in, an answer out.


def stepping(cluster: Cluster) -> int | None:
    """The step of the slowest rank; None unless every rank has stepped in this attempt."""
    ranks = running_ranks(cluster)
    if not ranks or not all(
        rank.alive and rank.step > rank.resumed_step for rank in ranks.values()
    ):
        return None
    return min(rank.step for rank in ranks.values())


def running_ranks(cluster: Cluster) -> dict[int, RankReport]:
    """The ranks of the running attempt, when all of them are there."""
    plan = cluster.plan
    if plan is None or plan.state != "running":
        return {}
    ranks = cluster.ranks(plan)
    return ranks if len(ranks) == plan.world_size else {}


def has_kept_work(cluster: Cluster) -> bool:
    """Whether the running attempt has a snapshot or a checkpoint of its own: then a fault shows
    what it costs a job, not how early it came."""
    plan = cluster.plan
    if plan is None:
        return False
    known = snapshot_reports(plan, cluster.nodes).values()
    resumed = max((rank.resumed_step for rank in cluster.ranks(plan).values()), default=0)
    if any(report.newest > resumed for report in known):
        return True
    return any(entry.attempt == plan.attempt for entry in cluster.ledger.values())


def node_of(cluster: Cluster, rank: int) -> str:
    """The node that runs this rank; empty for no rank."""
    members = cluster.plan.members if cluster.plan is not None else []
    return next((m.node for m in members if m.first_rank <= rank < m.first_rank + m.slots), "")


def incident_of(cluster: Cluster, injected: Injected) -> Incident | None:
    """The incident that ended the attempt in which this was done."""
    return incident_of_attempt(cluster, injected.attempt)


def incident_of_attempt(cluster: Cluster, attempt: int) -> Incident | None:
    """The incident that ended this attempt."""
    found = [i for i in cluster.incidents.values() if i.attempt == attempt]
    return max(found, key=lambda i: i.detected_unix_s, default=None)


def save_of(cluster: Cluster, answer: str) -> LedgerEntry | str:
    """The checkpoint that `holdfast checkpoint now --json` says it got, or why there is none."""
    try:
        said = json.loads(answer)
        identifier, reason = str(said["identifier"]), str(said["reason"])
    except (ValueError, TypeError, KeyError):
        return f"it answered {answer.strip()!r}" if answer.strip() else "it did not answer"
    if reason:
        return reason
    return cluster.ledger.get(identifier) or f"{identifier} is not in the ledger"


def news(before: Cluster, after: Cluster) -> list[str]:
    """What changed between two looks, in words."""
    return [*_new_checkpoints(before, after), *_incidents(before, after), *_plan(before, after)]


def progress(cluster: Cluster, what: str, steps: int) -> RunProgress:
    """The job as a picture: how far, and each node."""
    plan = cluster.plan
    if plan is None:
        waiting = ", ".join(sorted(cluster.agents)) or "none yet"
        return RunProgress(what, 0, steps, (f"nodes here: {waiting}",))
    ranks = cluster.ranks(plan)
    step = min((rank.step for rank in ranks.values()), default=0)
    state = f"attempt {plan.attempt} {plan.state}" + (f": {plan.cause}" if plan.cause else "")
    return RunProgress(what, step, steps, (state, *_nodes(cluster, plan, ranks)))


def _nodes(cluster: Cluster, plan: Plan, ranks: dict[int, RankReport]) -> list[str]:
    lines = []
    for member in sorted(plan.members, key=lambda m: m.node_rank):
        cells = (f"rank {r}: {_rank(ranks.get(r)):<22}" for r in member.ranks)
        lines.append(f"node {member.node}   " + "  ".join(cells))
    inside = {member.node for member in plan.members}
    spares = [node for node in sorted(cluster.agents) if node not in inside]
    alive = [f"node {node}   waiting as a spare" for node in spares if cluster.is_alive(node)]
    return lines + alive


def _rank(rank: RankReport | None) -> str:
    if rank is None:
        return "starting"
    return f"step {rank.step} {rank.phase}" if rank.alive else f"step {rank.step} gone"


def _new_checkpoints(before: Cluster, after: Cluster) -> list[str]:
    new = after.ledger.keys() - before.ledger.keys()
    steps = sorted(after.ledger[identifier].step for identifier in new)
    return [f"checkpoint of step {step} is complete" for step in steps]


def _incidents(before: Cluster, after: Cluster) -> list[str]:
    lines = []
    for identifier, incident in after.incidents.items():
        known = before.incidents.get(identifier)
        if known is None:
            lines.append(f"noticed: {incident.cause}, {name_culprit(incident)}")
        elif name_culprit(known) != name_culprit(incident):
            # The first to fall need not be the first to blame: a lost node takes others with it.
            lines.append(f"to blame: {incident.cause}, {name_culprit(incident)}")
        if incident.recovered_unix_s and (known is None or not known.recovered_unix_s):
            lost = incident.step_reached - incident.step_resumed
            took = incident.recovered_unix_s - incident.detected_unix_s
            lines.append(f"every rank steps again {took:.1f} s later, {lost} steps are done again")
    return lines


def _plan(before: Cluster, after: Cluster) -> list[str]:
    plan, old = after.plan, before.plan
    if plan is None or plan.state != "running" or (old is not None and old.attempt == plan.attempt):
        return []
    nodes = ", ".join(m.node for m in sorted(plan.members, key=lambda m: m.node_rank))
    source = f"from {plan.resume[0].words}" if plan.resume else "from nothing"
    return [f"attempt {plan.attempt} starts on nodes {nodes}, {source}"]


# Looks at the job that a demonstration runs, and waits for what is to come of it.

T = TypeVar("T")


LOOK_EVERY_S = 0.2
PATIENCE_S = 90.0
"""For each thing waited for: some ten times what it takes on two cores."""


def look(nodes: Nodes, store: Store, screen: Screen, before: Cluster) -> Cluster:
    """The job now, once its news are told; as it was before while the server does not answer.

    Raises DemonstrationStopped where a node has ended by itself, and not well.
    """
    if (failed := nodes.look()) is not None:
        raise DemonstrationStopped(
            f"node {failed.name} ended with exit code {failed.launcher.returncode}", failed.log
        )
    try:
        cluster = parse_cluster(store.read())
    except StoreUnavailable as error:
        log.warning("the server did not answer: %s", error)
        return before
    for line in news(before, cluster):
        screen.tell(line)
    return cluster


def find_within(
    limit_s: float, look_anew: Callable[[], None], store: Store, find: Callable[[], T | None]
) -> T | None:
    """Look until `find` answers; None when it takes longer than `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        look_anew()
        if (found := find()) is not None:
            return found
        if time.monotonic() > deadline:
            return None
        store.wait(LOOK_EVERY_S)


# What `holdfast explain` says of each fault, asked as a person would, once the job is gone.

LIMIT_S = 30.0
"""It reads a few small files; the rest is for a machine under load."""


def read_stories(
    workspace: Workspace, job: str, outcomes: Iterable[FaultResult]
) -> tuple[IncidentText, ...]:
    """The story of every fault that was noticed, in the order in which they were done."""
    return tuple(_ask(workspace, job, outcome) for outcome in outcomes if outcome.incident)


def _ask(workspace: Workspace, job: str, outcome: FaultResult) -> IncidentText:
    asked = programs.explain(workspace, job, outcome.incident)
    try:
        answer = subprocess.run(
            asked,
            env=_without_server(programs.environment()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return IncidentText(
            outcome.incident, "", f"holdfast explain took longer than {LIMIT_S:g} s"
        )
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return IncidentText(outcome.incident, "", f"holdfast explain failed: {lines[-1]}")
    return IncidentText(outcome.incident, answer.stdout.rstrip())


def _without_server(environment: Mapping[str, str]) -> dict[str, str]:
    """The job's own server is gone; one that the person uses otherwise knows nothing of it."""
    return {name: value for name, value in environment.items() if name != names.REDIS_URL}
