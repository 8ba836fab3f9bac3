"""What is told about snapshots: the node's slots, what each rank pays, and the job's rhythm."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.page import Word
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.metric import Sample, Told


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
