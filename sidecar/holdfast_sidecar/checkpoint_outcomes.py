"""Counts what became of coordinated checkpoints, and what they took. Pure.

The count is in the store, written by whoever leads: the next leader goes on from it, so that no
rate of it jumps.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast_sidecar.records.checkpoint import CheckpointOrder, CheckpointTally, LedgerEntry

OUTCOMES = ("complete", "void", "skipped")
"""Skipped ones were due while another was still being written."""
TRIGGERS = ("periodic", "manual")
"""Counted from 0; others appear with their first checkpoint."""


def of_run(tally: CheckpointTally, run: str) -> CheckpointTally:
    """This run's: what an earlier one under the same name saved is no part of it. run: empty where
    nobody knows which it is."""
    if not run or tally.run in ("", run):
        return tally
    return CheckpointTally(counted=tally.counted, slow=tally.slow, run=run)


def with_ended(
    tally: CheckpointTally, order: CheckpointOrder | None, entry: LedgerEntry | None
) -> CheckpointTally:
    """With this order, if it has ended and is not counted yet; `entry`: its own in the ledger."""
    if order is None or order.state not in OUTCOMES or order.identifier == tally.counted:
        return tally
    tally = replace(_one_more(tally, order.state, order.trigger), counted=order.identifier)
    if order.state != "complete" or entry is None or entry.write_s <= 0:
        return tally
    return replace(
        tally,
        measured=tally.measured + 1,
        blocked_s=tally.blocked_s + entry.blocked_s,
        write_s=tally.write_s + entry.write_s,
    )


def with_skipped(tally: CheckpointTally, slow: str) -> CheckpointTally:
    """With the one that was due while the order `slow` was still being written; empty: none was."""
    if not slow or slow == tally.slow:
        return tally
    return replace(_one_more(tally, "skipped", "periodic"), slow=slow)


def _one_more(tally: CheckpointTally, outcome: str, trigger: str) -> CheckpointTally:
    what = f"{outcome} {trigger}"
    return replace(tally, ended={**tally.ended, what: tally.ended.get(what, 0) + 1})
