"""What the leader tells about the whole job, out of its newest reading of the store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.contract.page import ReplyState, Word
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.controller.checkpointing import OUTCOMES, TRIGGERS
from holdfast_sidecar.export.sidecar_metrics import draw_energy
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.export.status import attached_plan
from holdfast_sidecar.incidents.explain import lost_s
from holdfast_sidecar.performance.metrics import (
    draw_goodput,
    draw_memory,
    draw_reliability,
    draw_slowness,
)
from holdfast_sidecar.performance.stragglers.groups import UNDEFINED
from holdfast_sidecar.policy.budget import OF_A_NODE, count, find_lemons, taken_back
from holdfast_sidecar.policy.checkpoint_schedule import target_s, work_out
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.quarantine import is_kept_out
from holdfast_sidecar.policy.replication import copied_step, lag_steps
from holdfast_sidecar.ranks.observation import UNSPLIT, RankHistory, is_finite, own_s, step_s
from holdfast_sidecar.ranks.probe import STEPS_OF_PACE
from holdfast_sidecar.records.checkpoint import CheckpointTally, LedgerEntry
from holdfast_sidecar.records.metric import (
    NODE,
    RANK,
    Labels,
    MetricSpec,
    Sample,
    counter,
    gauge,
    of_job,
)
from holdfast_sidecar.records.plan import WITHHELD, Incident, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import NOWHERE, parse_groups

# What is told about each rank of this node.

# Metrics of what ranks exchange in which process group; `group_samples.py` fills them in.

GROUP = (*RANK, "group")

GROUPS: tuple[MetricSpec, ...] = (
    counter(
        "rank_group_calls_total",
        "",
        GROUP,
        "Collectives and messages that the rank began in this process group, one of its first four;"
        " absent while it is in none.",
    ),
    counter(
        "rank_group_bytes_total",
        "bytes",
        GROUP,
        "Bytes of the larger side of each, as far as they were seen: what is reduced, gathered,"
        " scattered. By the time that they take it is the algorithm bandwidth.",
    ),
    counter(
        "rank_group_wait_seconds_total",
        "seconds",
        GROUP,
        "Time that the rank stood waiting in them, of steps that were measured in parts; what runs"
        " behind the computing is not in it.",
    ),
)


# What is told of a rank's process groups: those whose waits are told apart.


def draw_groups(history: RankHistory, groups: Sequence[str], told: Labels) -> Iterator[Sample]:
    """groups: as the rank's report tells them."""
    words = history.look.words
    for slot, name in enumerate(name_groups(groups)):
        if name:
            yield from told("rank_group_calls_total", words[Word.COLLECTIVES_1 + slot], group=name)
            yield from told("rank_group_bytes_total", words[Word.SENT_BYTES_1 + slot], group=name)
            waited_s = history.group_waits_s[slot]
            yield from told("rank_group_wait_seconds_total", waited_s, group=name)


def name_groups(groups: Sequence[str]) -> list[str]:
    """What each is for, else a sign of its members; numbered where several are alike. Empty: there
    is none."""
    names: list[str] = []
    for group in parse_groups(list(groups)):
        title = "" if group is None or group.title == UNDEFINED else group.title
        name = title or (f"group {group.digest[:8]}" if group is not None else "")
        alike = sum(one.partition(" #")[0] == name for one in names)
        names.append(f"{name} #{alike + 1}" if name and alike else name)
    return names


TICK_S = 1 / os.sysconf("SC_CLK_TCK")


RARE = frozenset({"data", "saving", "evaluating", "compiling", "transfer", UNSPLIT})
"""Many ranks never do one or the other: series, of thousands of ranks, that would be 0 for ever."""


def draw_ranks(picture: TickState, told: Labels) -> Iterator[Sample]:
    """Every rank of the newest attempt on this node."""
    for rank, history in picture.ranks.local.items():
        yield from _draw_rank(history, picture, told.about(rank=str(rank)))


def _draw_rank(history: RankHistory, picture: TickState, told: Labels) -> Iterator[Sample]:
    look, words, moment = history.look, history.look.words, picture.moment
    boundary_ns = words[Word.BOUNDARY_NS]
    yield from told("rank_up", not look.has_died)
    yield from told("rank_step", look.step)
    yield from told("rank_phase_id", look.phase)
    is_told = words[Word.BUSY_CHANGED_NS] > 0
    yield from told("rank_busy", bool(look.busy) if is_told else None)
    since_s = words[Word.PHASE_SINCE_NS] / 1e9
    yield from told(
        "rank_phase_since_timestamp_seconds", moment.unix_s(since_s) if since_s else None
    )
    yield from told(
        "rank_last_step_timestamp_seconds",
        moment.unix_s(boundary_ns / 1e9) if look.step else None,
    )
    yield from told("rank_step_seconds", step_s(history.whole_steps, STEPS_OF_PACE) or None)
    yield from told("rank_own_seconds", own_s(history.whole_steps, STEPS_OF_PACE) or None)
    for phase, total_s in history.phase_totals.items():
        if total_s or phase not in RARE:
            yield from told("rank_phase_seconds_total", total_s, phase=phase)
    yield from told("rank_gc_seconds_total", history.collector_s)
    yield from told("rank_loss", look.loss if is_finite(look.loss) else None)
    yield from told("rank_nonfinite_losses_total", words[Word.NONFINITE])
    norm = look.gradient_norm
    yield from told("rank_gradient_norm", norm if is_finite(norm) else None)
    yield from told("rank_nonfinite_gradients_total", words[Word.NONFINITE_GRADIENTS])
    yield from told("rank_scaler_skipped_steps", words[Word.SCALER_SKIPS])
    yield from told("rank_spikes_total", history.numbers.spikes)
    yield from told("rank_collectives_total", words[Word.COLLECTIVES_ENTERED])
    yield from told("rank_optimizer_calls_total", words[Word.OPTIMIZER_CALLS])
    yield from told("rank_hook_errors_total", words[Word.HOOK_ERRORS])
    yield from told("rank_resumed_step", words[Word.RESUMED_STEP])
    if look.reply is not None and look.reply.state in (ReplyState.SAVED, ReplyState.COPIED):
        yield from told("rank_checkpoint_seconds", look.reply.duration_ns / 1e9)
        yield from told("rank_checkpoint_bytes", look.reply.size_bytes)
    yield from draw_memory(look, told)
    standing = picture.machine.layouts.get(look.rank, NOWHERE)
    yield from draw_groups(history, standing.groups, told)
    yield from draw_energy(picture.gpus.energy.of(look.rank), look.tokens, told)
    cpu_ticks = None if look.process is None else look.process.cpu_ticks
    yield from told("rank_cpu_seconds_total", None if cpu_ticks is None else cpu_ticks * TICK_S)


# What the leader tells about checkpoints: the newest, their verdicts and cost, the schedule.

VERDICTS = ("complete", "good", "poisoned")


def draw_checkpoints(picture: TickState, cluster: Cluster, told: Labels) -> Iterator[Sample]:
    """The ledger, the order that is armed, what was counted, and the interval aimed at."""
    yield from _draw_ledger(cluster.ledger, told)
    order = cluster.checkpoint
    armed = order is not None and order.state in ("armed", "writing")
    yield from told("checkpoint_armed_step", order.step if order is not None and armed else None)
    yield from _draw_tally(cluster.tally, told)
    if not picture.checkpoint_settings.dir:
        return
    schedule = work_out(cluster, picture.checkpoint_settings, picture.moment.now_unix_s)
    yield from told(
        "checkpoint_interval_target_seconds", target_s(schedule, picture.checkpoint_settings)
    )
    yield from told("checkpoint_assumed_mtbf_seconds", schedule.rate.mtbf_s)


def _draw_ledger(ledger: Mapping[str, LedgerEntry], told: Labels) -> Iterator[Sample]:
    verdicts = Counter(entry.verdict for entry in ledger.values())
    for verdict in (*VERDICTS, *sorted(verdicts.keys() - set(VERDICTS))):
        yield from told("checkpoints", verdicts[verdict], verdict=verdict)
    newest = _newest(ledger, "complete", "good")
    if newest is not None:
        yield from told("checkpoint_last_durable_step", newest.step)
        yield from told("checkpoint_last_durable_timestamp_seconds", newest.at_unix_s)
        yield from told("checkpoint_bytes", newest.size_bytes)
    good = _newest(ledger, "good")
    if good is not None:
        yield from told("checkpoint_last_good_step", good.step)
        yield from told("checkpoint_last_good_timestamp_seconds", good.at_unix_s)


def _newest(ledger: Mapping[str, LedgerEntry], *verdicts: str) -> LedgerEntry | None:
    usable = (entry for entry in ledger.values() if entry.verdict in verdicts)
    return max(usable, key=lambda entry: (entry.attempt, entry.epoch, entry.step), default=None)


def _draw_tally(tally: CheckpointTally, told: Labels) -> Iterator[Sample]:
    triggers = {*TRIGGERS, *(what.partition(" ")[2] for what in tally.ended)}
    for result in OUTCOMES:
        for trigger in sorted(triggers):
            count = tally.ended.get(f"{result} {trigger}", 0)
            yield from told("checkpoint_saves_total", count, result=result, trigger=trigger)
    for phase, total_s in (("blocked", tally.blocked_s), ("write", tally.write_s)):
        yield from told.summary("checkpoint_duration_seconds", tally.measured, total_s, phase=phase)


# What is told about snapshots: the node's slots, what each rank pays, and the job's rhythm.


def draw_snapshots(picture: TickState, told: Labels) -> Iterator[Sample]:
    """This node's slots, and its ranks."""
    report = picture.snapshot
    if report is not None:
        yield from told("snapshot_slots", report.slots if report.wants else None)
        yield from told("snapshot_memory_bytes", report.slot_bytes)
        yield from told("snapshot_newest_step", report.newest if report.newest >= 0 else None)
        sealed_s = report.newest_sealed_s
        yield from told(
            "snapshot_newest_timestamp_seconds",
            picture.moment.unix_s(sealed_s) if sealed_s else None,
        )
    for rank, history in picture.ranks.local.items():
        yield from _draw_rank_saves(history, told.about(rank=str(rank)))


def draw_rhythm(picture: TickState, told: Labels) -> Iterator[Sample]:
    """How often they are taken, as the leader has it."""
    order = picture.orders.snapshot
    yield from told("snapshot_every_steps", None if order is None else order.every_steps)


def _draw_rank_saves(history: RankHistory, told: Labels) -> Iterator[Sample]:
    """Nothing of a rank that never asked for a slot: its script has no state to take."""
    words = history.look.words
    taken = words[Word.SNAPSHOTS_TAKEN]
    if not (words[Word.SNAPSHOT_WANTED] or taken):
        return
    yield from told("snapshot_taken_total", taken)
    yield from told("snapshot_skipped_total", words[Word.SNAPSHOTS_SKIPPED])
    yield from told("snapshot_blocked_seconds_total", words[Word.SNAPSHOT_BLOCKED_NS] / 1e9)
    for name, word in (
        ("snapshot_last_blocked_seconds", Word.SNAPSHOT_LAST_NS),
        ("snapshot_first_blocked_seconds", Word.SNAPSHOT_FIRST_NS),
    ):
        yield from told(name, words[word] / 1e9 if taken else None)


# Copies of snapshots on other nodes: how far behind they are, and what this node did for them.


def draw_lag(picture: TickState, told: Labels) -> Iterator[Sample]:
    """What the loss of a node would cost the job now."""
    if picture.orders.view is None:
        return
    cluster = parse_cluster(picture.orders.view)
    if cluster.plan is None:
        return
    lag = lag_steps(cluster, cluster.plan)
    if lag is None:
        return
    pace_s = max(rank.step_s for rank in cluster.ranks(cluster.plan).values())
    yield from told("peer_copied_step", copied_step(cluster, cluster.plan))
    yield from told("peer_lag_steps", lag)
    yield from told("peer_lag_seconds", lag * pace_s)


def draw_transfers(counts: PeerCounts, told: Labels) -> Iterator[Sample]:
    """What this node's sidecar sent and received."""
    yield from told("peer_copies_total", counts.copies)
    yield from told("peer_received_bytes_total", counts.received_bytes)
    yield from told("peer_receive_seconds_total", counts.seconds)
    yield from told("peer_sent_bytes_total", counts.sent_bytes)
    yield from told("peer_failures_total", counts.failures)
    yield from told("peer_refused_callers_total", counts.refused)


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
    cluster: Cluster, policy: PolicySettings, now_unix_s: float, told: Labels
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


def draw_job(picture: TickState, told: Labels) -> Iterator[Sample]:
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


def _draw_plan(cluster: Cluster, plan: Plan, told: Labels) -> Iterator[Sample]:
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


def _draw_incidents(incidents: list[Incident], told: Labels) -> Iterator[Sample]:
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
