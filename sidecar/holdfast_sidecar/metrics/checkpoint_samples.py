"""What the leader tells about checkpoints: the newest, their verdicts and cost, the schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast_sidecar.controller.checkpointing import OUTCOMES, TRIGGERS
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.policy.checkpoint_schedule import target_s, work_out
from holdfast_sidecar.policy.cluster import Cluster
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
