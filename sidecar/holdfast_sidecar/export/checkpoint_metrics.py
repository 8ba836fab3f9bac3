"""What the leader tells about checkpoints: the newest, their verdicts and cost, the schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.contract.page import Word
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.controller.checkpointing import OUTCOMES, TRIGGERS
from holdfast_sidecar.export.state import Picture
from holdfast_sidecar.policy.checkpoint_schedule import target_s, work_out
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.replication import copied_step, lag_steps
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.checkpoint import CheckpointTally, LedgerEntry
from holdfast_sidecar.records.metric import Sample, Told

VERDICTS = ("complete", "good", "poisoned")


def draw_checkpoints(picture: Picture, cluster: Cluster, told: Told) -> Iterator[Sample]:
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


def _draw_ledger(ledger: Mapping[str, LedgerEntry], told: Told) -> Iterator[Sample]:
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


def _draw_tally(tally: CheckpointTally, told: Told) -> Iterator[Sample]:
    triggers = {*TRIGGERS, *(what.partition(" ")[2] for what in tally.ended)}
    for result in OUTCOMES:
        for trigger in sorted(triggers):
            count = tally.ended.get(f"{result} {trigger}", 0)
            yield from told("checkpoint_saves_total", count, result=result, trigger=trigger)
    for phase, total_s in (("blocked", tally.blocked_s), ("write", tally.write_s)):
        yield from told.summary("checkpoint_duration_seconds", tally.measured, total_s, phase=phase)


# What is told about snapshots: the node's slots, what each rank pays, and the job's rhythm.


def draw_snapshots(picture: Picture, told: Told) -> Iterator[Sample]:
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
        yield from _draw_rank(history, told.about(rank=str(rank)))


def draw_rhythm(picture: Picture, told: Told) -> Iterator[Sample]:
    """How often they are taken, as the leader has it."""
    order = picture.orders.snapshot
    yield from told("snapshot_every_steps", None if order is None else order.every_steps)


def _draw_rank(history: RankHistory, told: Told) -> Iterator[Sample]:
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


def draw_lag(picture: Picture, told: Told) -> Iterator[Sample]:
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


def draw_transfers(counts: PeerCounts, told: Told) -> Iterator[Sample]:
    """What this node's sidecar sent and received."""
    yield from told("peer_copies_total", counts.copies)
    yield from told("peer_received_bytes_total", counts.received_bytes)
    yield from told("peer_receive_seconds_total", counts.seconds)
    yield from told("peer_sent_bytes_total", counts.sent_bytes)
    yield from told("peer_failures_total", counts.failures)
    yield from told("peer_refused_callers_total", counts.refused)
