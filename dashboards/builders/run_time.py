"""Of a run: the partition of its wall clock, over time and as a whole."""

from __future__ import annotations

from builders.colours import CATEGORIES
from builders.goodput import shares
from builders.grid import Placed
from builders.lights import bad_below, donut
from builders.lines import Style, lines
from builders.names import RANKS, RECOVERY, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import gained, gauge


def panels() -> list[Placed]:
    """The partition twice, then how the rest of a step is spent."""
    return [
        Placed(_partition(), 16, 10),
        Placed(_whole(), 8, 10),
        Placed(_shares(), 12, 7),
        Placed(_pace(), 12, 7),
    ]


def _partition() -> Json:
    words = Words(
        "The wall clock, partitioned",
        "Every second is in exactly one category. Green is training; what faults took is orange "
        "and red, waiting for data and storage blue, starting up purple.",
        "The widest band that is not green is where to begin: *restart* and *restore* under "
        "*Checkpoints and recovery*, *straggler* and *data_wait* under *Ranks × time*.",
        RECOVERY,
    )
    scale = Scale("percentunit", least=0, most=1, colours=CATEGORIES)
    style = Style("percent", legend_at="right")
    return lines(words, scale, shares("holdfast_job_time_seconds_total"), style)


def _whole() -> Json:
    words = Hint(
        "In the time shown",
        "The same, added up over the time shown.",
        "Hover over a part for its seconds.",
        RECOVERY,
    )
    went = gained("holdfast_job_time_seconds_total", "by (category)")
    scale = Scale("s", least=0, colours=CATEGORIES)
    return donut(words, scale, [now(f"{went} > 0", "{{category}}")])


def _shares() -> Json:
    words = Hint(
        "Of a step",
        "Exposed communication on the median rank, waiting for batches, pipeline stages without "
        "work.",
        "Data above 10 %: more loader workers, or faster storage. Communication "
        "up without a change of the job: see the fabric under *Node health*.",
        RANKS,
        ("run",),
    )
    told = {
        "communication": "holdfast_job_communication_share_ratio",
        "data": "holdfast_job_data_share_ratio",
        "pipeline bubble": "holdfast_job_pipeline_bubble_ratio",
    }
    queries = [over_time(gauge(metric), f"{{{{run}}}}: {name}") for name, metric in told.items()]
    return lines(words, Scale("percentunit", least=0), queries)


def _pace() -> Json:
    limits = bad_below("percentunit", 0.95, 0.85)
    scale = Scale("percentunit", least=0, steps=limits.steps)
    words = Words(
        "Pace",
        "Throughput of the newest steps against that of the attempt's first ones: 100 % is as "
        "fast.",
        "Everyone became slower: storage, network, or what the script does. One rank did: "
        "*Ranks × time*.",
        RANKS,
        ("run",),
    )
    query = over_time(gauge("holdfast_job_pace_ratio"), "{{run}}")
    return lines(words, scale, [query], Style(limits=True))
