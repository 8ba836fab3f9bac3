"""Of recovery: how much work is at risk, and what checkpoints, snapshots and copies cost."""

from __future__ import annotations

from builders.colours import BAD, GOOD, GREY
from builders.goodput import checkpoint_lateness
from builders.grid import Placed
from builders.lights import bad_from, bars, light
from builders.lines import lines, one_line
from builders.names import RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import PER_RUN, gained, gauge, of_run, rate

NAME = "{{run}}"


def panels() -> list[Placed]:
    """Four lights; ages, durations, results, sizes."""
    lit = (_late(), _at_risk(), _node_risk(), _saves())
    graphs = (_age(), _durations(), _snapshots(), _passed_over(), _peers(), _ledger())
    return [*(Placed(one, 6, 5) for one in lit), *(Placed(one, 8, 8) for one in graphs)]


def _late() -> Json:
    words = Words(
        "Checkpoint is late by",
        "Age of the newest durable checkpoint, in intervals that are aimed at.",
        "Is storage slow or full? Are saves voided? `holdfast checkpoint now` says what it "
        "waits for.",
        RUN,
        ("run",),
    )
    return light(words, bad_from("suffix: ×", 2, 1.5), [now(checkpoint_lateness(), NAME)])


def _at_risk() -> Json:
    age = f"time() - {gauge('holdfast_checkpoint_last_durable_timestamp_seconds')}"
    hours = f"({age}) / 3600 * {gauge('holdfast_job_gpus')}"
    words = Hint(
        "Work at risk",
        "GPU hours since the newest durable checkpoint: lost if every copy in memory is.",
        "What is much depends on the run. `holdfast checkpoint plan` says why the "
        "interval is what it is.",
        RUN,
        ("run",),
    )
    scale = Scale("suffix: GPU h", decimals=1, steps=((None, GREY),))
    return light(words, scale, [now(hours, NAME)])


def _node_risk() -> Json:
    words = Words(
        "A node's loss would cost",
        "Training since the newest step of which other nodes have copies. No data: there are no "
        "copies, and it costs what is at risk.",
        "Copies fall behind: the network between nodes is slow, see `peer copies` below.",
        RUN,
        ("run",),
    )
    lag = gauge("holdfast_peer_lag_seconds")
    return light(words, bad_from("s", 600, 120), [now(lag, NAME)])


def _saves() -> Json:
    words = Hint(
        "Checkpoints, by how they ended",
        "In the time shown: complete, void (a rank did not come, or wrote none), skipped (the "
        "one before was still being written).",
        "Void again and again: `holdfast checkpoint list` says why.",
        RUN,
    )
    ended = gained("holdfast_checkpoint_saves_total", "by (result)")
    colours = {"complete": GOOD, "void": BAD, "skipped": GREY}
    scale = Scale("none", least=0, decimals=0, colours=colours)
    return bars(words, scale, [now(ended, "{{result}}")])


def _age() -> Json:
    sealed = gauge("holdfast_checkpoint_last_durable_timestamp_seconds")
    good = gauge("holdfast_checkpoint_last_good_timestamp_seconds")
    words = Words(
        "Age",
        "Of the newest durable checkpoint, of the newest good one, and the interval aimed at.",
        "A saw that does not fall any more: no checkpoint gets through.",
        RUN,
        ("run",),
    )
    queries = [
        over_time(f"time() - {sealed}", "{{run}}: durable"),
        over_time(f"time() - {good}", "{{run}}: good"),
        over_time(gauge("holdfast_checkpoint_interval_target_seconds"), "{{run}}: aimed at"),
    ]
    return lines(words, Scale("s", least=0), queries)


def _durations() -> Json:
    words = Hint(
        "What a checkpoint takes",
        "The mean one: what it kept the slowest loop, and writing and hashing beside training.",
        "*blocked* growing costs every rank; *write* growing is storage, and "
        "makes the interval longer.",
        RUN,
        ("run",),
    )
    total = _rate("holdfast_checkpoint_duration_seconds_sum")
    count = _rate("holdfast_checkpoint_duration_seconds_count")
    query = over_time(f"{total} / ({count} > 0)", "{{run}}: {{phase}}")
    return lines(words, Scale("s", least=0), [query])


def _snapshots() -> Json:
    blocked = of_run("holdfast_snapshot_last_blocked_seconds")
    words = Hint(
        "A snapshot keeps the loop",
        "What the newest one in memory kept the slowest rank.",
        "Growing: memory of the host is busy; see the host under *Node health*.",
        RUN,
        ("run",),
    )
    return one_line(words, "s", f"max {PER_RUN} ({blocked})", NAME)


def _passed_over() -> Json:
    taken, skipped, copied, failed = (
        rate(f"holdfast_{name}_total")
        for name in ("snapshot_taken", "snapshot_skipped", "peer_copies", "peer_failures")
    )
    words = Hint(
        "Skipped, or failed",
        "The share of snapshots that was skipped for want of a slot, and of copies to other nodes "
        "that failed.",
        "Skipped: a third slot, or fewer snapshots. Failed: the nodes can't reach "
        "each other on the peers' port, or one is overloaded.",
        RUN,
        ("run",),
    )
    queries = [
        over_time(f"{skipped} / ({taken} + {skipped} > 0)", "{{run}}: skipped"),
        over_time(f"{failed} / ({copied} + {failed} > 0)", "{{run}}: failed"),
    ]
    return lines(words, Scale("percentunit", least=0), queries)


def _peers() -> Json:
    words = Hint(
        "Copies to other nodes",
        "Bytes of snapshots brought to other nodes, a second.",
        "0 while training with more than one node: are they on, is there memory? "
        "`holdfast status` says.",
        RUN,
        ("run",),
    )
    received = rate("holdfast_peer_received_bytes_total")
    return one_line(words, "Bps", received, NAME)


def _ledger() -> Json:
    words = Hint(
        "Checkpoints kept",
        "In the ledger, by verdict: complete ones, those called good after a while, poisoned ones "
        "that are not loaded again.",
        "Poisoned ones: `holdfast checkpoint show` says what they led to.",
        RUN,
        ("run",),
    )
    kept = gauge("holdfast_checkpoints", per="by (cluster, run, verdict)")
    return one_line(words, "none", kept, "{{run}}: {{verdict}}")


def _rate(metric: str) -> str:
    return f"sum by (cluster, run, phase) (rate({of_run(metric)}[$__rate_interval]))"
