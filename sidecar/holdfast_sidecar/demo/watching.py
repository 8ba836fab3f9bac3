"""What the demonstration looks for in the job's records. Pure: a cluster in, an answer out."""

from __future__ import annotations

import json

from holdfast_sidecar.demo.outcome import Injected, name_culprit
from holdfast_sidecar.demo.screen import Progress
from holdfast_sidecar.policy.checkpoint_schedule import snapshot_reports
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import RankReport


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


def progress(cluster: Cluster, what: str, steps: int) -> Progress:
    """The job as a picture: how far, and each node."""
    plan = cluster.plan
    if plan is None:
        waiting = ", ".join(sorted(cluster.agents)) or "none yet"
        return Progress(what, 0, steps, (f"nodes here: {waiting}",))
    ranks = cluster.ranks(plan)
    step = min((rank.step for rank in ranks.values()), default=0)
    state = f"attempt {plan.attempt} {plan.state}" + (f": {plan.cause}" if plan.cause else "")
    return Progress(what, step, steps, (state, *_nodes(cluster, plan, ranks)))


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
