"""Of the fleet: what GPU time went to, by category, by run, by cause."""

from __future__ import annotations

from builders.colours import CATEGORIES
from builders.goodput import UNPRODUCTIVE, shares, shown_goodput
from builders.grid import Placed
from builders.lights import bad_below, bars
from builders.lines import Style, lines, one_line
from builders.names import RECOVERY, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now
from builders.selecting import gained, of_run


def panels() -> list[Placed]:
    """What it went to over time; what of it was lost; how each run does."""
    return [
        Placed(_partition(), 12, 9),
        Placed(_lost(), 6, 9),
        Placed(_lost_by_cause(), 6, 9),
        Placed(_goodput(), 12, 9),
        Placed(_mfu(), 12, 9),
    ]


def _partition() -> Json:
    words = Words(
        "GPU time, by what it went to",
        "Of all chosen runs together, weighted by their GPUs. Green is training; all the rest "
        "is what could be won.",
        "Orange and red are faults: see *Lost to* for the largest, then its run. Blue waits for "
        "data and storage, purple starts up.",
        RECOVERY,
    )
    scale = Scale("percentunit", least=0, most=1, colours=CATEGORIES)
    style = Style("percent", legend_at="right")
    return lines(words, scale, shares("holdfast_job_gpu_time_seconds_total"), style)


def _lost() -> Json:
    lost = gained("holdfast_job_gpu_time_seconds_total", "by (category)", UNPRODUCTIVE)
    words = Hint(
        "Lost to",
        "GPU hours in the time shown that were no training, by category.",
        "The longest bar is where an hour of work saves most.",
        RECOVERY,
    )
    scale = Scale("suffix: GPU h", least=0, decimals=1, colours=CATEGORIES)
    return bars(words, scale, [now(f"sort_desc({lost} / 3600)", "{{category}}")])


def _lost_by_cause() -> Json:
    again = gained("holdfast_job_lost_work_gpu_seconds_total", "by (cause)")
    words = Hint(
        "Trained twice because of",
        "GPU hours of training in the time shown that had to be done again, by cause.",
        "Long bars: checkpoint or snapshot more often, see *Checkpoints and recovery*.",
        RECOVERY,
    )
    scale = Scale("suffix: GPU h", least=0, decimals=1)
    return bars(words, scale, [now(f"sort_desc({again} / 3600)", "{{cause}}")])


def _goodput() -> Json:
    words = Words(
        "Goodput of each run",
        "Of the time shown: training that counted, of all time since its first node was there.",
        "Below 90 %: open the run and look at its partition of the wall clock.",
        RUN,
        ("run",),
    )
    scale = bad_below("percentunit", 0.9, 0.7, most=1)
    return bars(words, scale, [now(f"sort({shown_goodput()})", "{{run}}")])


def _mfu() -> Json:
    words = Hint(
        "MFU of each run",
        "Of what the devices could do, what the model needed.",
        "A step down that stays: compare with the run's step time and slow ranks.",
        RUN,
        ("run",),
    )
    mfu = f"max by (run) ({of_run('holdfast_job_mfu_ratio')})"
    return one_line(words, "percentunit", mfu, "{{run}}")
