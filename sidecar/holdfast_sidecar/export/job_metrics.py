"""What the leader tells about the whole job, out of its newest reading of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.export.checkpoint_metrics import draw_checkpoints
from holdfast_sidecar.export.state import Picture
from holdfast_sidecar.export.status import attached_plan
from holdfast_sidecar.incidents.explain import lost_s
from holdfast_sidecar.performance.goodput.metrics import draw_goodput, draw_reliability
from holdfast_sidecar.performance.stragglers.metrics import draw_slowness
from holdfast_sidecar.policy.budget import OF_A_NODE, count, find_lemons, taken_back
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.quarantine import is_kept_out
from holdfast_sidecar.records.metric import NODE, Sample, Told, counter, gauge, of_job
from holdfast_sidecar.records.plan import WITHHELD, Incident, Plan
from holdfast_sidecar.records.reports import RankReport

# Metrics of who is blamed for failures; `blame_samples.py` fills them in.

BLAMES = (
    of_job(
        gauge(
            "node_lemon_score",
            "",
            NODE,
            "Failures that are held against a node, older ones counting less; at"
            " policy.blames_limit (rounded) it is kept outside.",
        )
    ),
    of_job(
        counter(
            "node_blamed_total",
            "",
            (*NODE, "cause"),
            "Failures that this node's machine was blamed for, by cause; absent for a node that"
            " never was.",
        )
    ),
)


# Who is blamed for failures, and how often.


def draw_blames(
    cluster: Cluster, policy: PolicySettings, now_unix_s: float, told: Told
) -> Iterator[Sample]:
    """A score for every node that there is, and for whoever was blamed and is gone."""
    lemons = find_lemons(cluster.incidents.values(), policy, now_unix_s)
    scores: dict[str, float] = {}
    blamed: dict[str, Counter[str]] = {}
    for lemon in lemons:
        scores[lemon.node] = max(scores.get(lemon.node, 0.0), lemon.score)
        blamed.setdefault(lemon.node, Counter()).update(lemon.blamed)
    for (node, cause), times in taken_back(cluster.incidents.values()).items():
        blamed.setdefault(node, Counter())[cause] += times
    for node in sorted({*cluster.agents, *scores}):
        yield from told("node_lemon_score", scores.get(node, 0.0), node=node)
    for node, causes in sorted(blamed.items()):
        for cause in sorted(OF_A_NODE):
            yield from told("node_blamed_total", causes[cause], node=node, cause=cause)


STATES = ("running", "evidence", "ended", "done", "stopped")

CAUSES = ("crash", "hang", "stall", "data_stall", "node_lost", "gpu", "link", "host", "straggler")
"""Counted from 0; other causes appear with their first incident."""


def draw_job(picture: Picture, told: Told) -> Iterator[Sample]:
    """Plan, nodes, incidents and checkpoints."""
    if picture.orders.view is None:
        return
    cluster = parse_cluster(picture.orders.view)
    leader = picture.orders.lease.candidate
    waits = any(node.waiting and node.candidate == leader for node in cluster.nodes.values())
    yield from told("leader_waiting", waits)
    for node, seen_unix_s in sorted(picture.heartbeats.items()):
        yield from told("node_last_heartbeat_timestamp_seconds", seen_unix_s, node=node)
    if cluster.plan is not None:
        yield from _draw_plan(cluster, cluster.plan, told)
    if (plan := cluster.plan or attached_plan(picture.orders.view)) is not None:
        yield from draw_slowness(cluster, plan, leader, told)
    yield from _draw_incidents(list(cluster.incidents.values()), told)
    yield from draw_goodput(cluster.account, CAUSES, picture.price, told)
    yield from draw_reliability(cluster, picture.policy, picture.moment.now_unix_s, told)
    yield from draw_blames(cluster, picture.policy, picture.moment.now_unix_s, told)
    yield from draw_checkpoints(picture, cluster, told)


def _draw_plan(cluster: Cluster, plan: Plan, told: Told) -> Iterator[Sample]:
    yield from told("job_attempt", plan.attempt)
    for state in STATES:
        yield from told("job_state", plan.state == state, state=state)
    members = {member.node for member in plan.members}
    outside = [a for a in cluster.agents.values() if a.state == "joining" and a.node not in members]
    spare = [agent for agent in outside if not is_kept_out(agent, plan.outside)]
    yield from told("job_nodes_kept_out", len(plan.outside))
    yield from told("job_paused", plan.pause is not None)
    yield from told("job_nodes_expected", len(members))
    yield from told("job_nodes_spare", len(spare))
    yield from told("job_ranks_expected", plan.world_size)
    ranks = cluster.ranks(plan)
    yield from told("job_ranks_reporting", sum(rank.alive for rank in ranks.values()))
    yield from told("job_step", min((rank.step for rank in ranks.values()), default=None))
    yield from told("job_restarts_total", plan.restarts)
    yield from told("job_token_energy_joules", token_joules(ranks.values()))


def token_joules(ranks: Iterable[RankReport]) -> float | None:
    """What all ranks together spend for one token; None unless all are metered and one tells."""
    alive = [rank for rank in ranks if rank.alive]
    powers = [rank.power_w for rank in alive if rank.power_w is not None]
    pace = sum(rank.tokens_per_s or 0.0 for rank in alive)
    return sum(powers) / pace if pace > 0 and len(powers) == len(alive) else None


def _draw_incidents(incidents: list[Incident], told: Told) -> Iterator[Sample]:
    # One that was acted on later counts as both: a counter never falls.
    withheld = count(incidents, "withheld")
    for why in sorted(WITHHELD):
        yield from told("job_withheld_total", withheld[why], why=why)
    by_cause, lost = count(incidents, "incident"), _lost_steps(incidents)
    for cause in (*CAUSES, *sorted(by_cause.keys() - set(CAUSES))):
        yield from told("job_incidents_total", by_cause[cause], cause=cause)
        yield from told("job_lost_steps_total", lost[cause], cause=cause)
    incidents = [incident for incident in incidents if incident.decided not in WITHHELD]
    newest = max(incidents, key=lambda one: one.detected_unix_s, default=None)
    yield from told(
        "job_last_incident_timestamp_seconds", None if newest is None else newest.detected_unix_s
    )
    over = [incident for incident in incidents if incident.recovered_unix_s]
    latest = max(over, key=lambda one: one.recovered_unix_s, default=None)
    yield from told(
        "job_last_recovery_duration_seconds",
        None if latest is None else lost_s(latest),
    )


def _lost_steps(incidents: list[Incident]) -> Counter[str]:
    lost: Counter[str] = Counter()
    for incident in incidents:
        for cause in count([incident], "lost"):
            lost[cause] += max(0, incident.step_reached - incident.step_resumed)
    return lost
