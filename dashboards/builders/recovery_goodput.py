"""Of recovery: goodput, ETTR, time between failures, and burning through what may be lost."""

from __future__ import annotations

from builders.colours import CATEGORIES
from builders.goodput import UNPRODUCTIVE, gpu_hours_lost, shown_goodput
from builders.grid import Placed
from builders.lights import bad_below, bars, figure, light
from builders.lines import Style, lines
from builders.names import RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import PER_RUN, gained, gauge, of_run

NAME = "{{run}}"
GOAL = 0.9
"""With 95 % as the goal the worst there is burns 20 times too fast, with 90 % ten times; runs of
some days on hundreds of GPUs reach 90 (ByteRobust tells of 97 on 9,600)."""


def panels() -> list[Placed]:
    """Five values, then goodput over time and what kept it down."""
    made = (_life(), _shown(), _ettr(), _between(), _lost_hours(), _money())
    return [
        *(Placed(one, 4, 4) for one in made),
        Placed(_over_time(), 14, 8),
        Placed(_bad(), 10, 8),
    ]


def _life() -> Json:
    words = Words(
        "Goodput, whole run",
        "Training that counted, of all time since the run's first node was there.",
        "The parts are on the right; a run that has just begun is red because it starts up.",
        RUN,
        ("run",),
    )
    goodput = gauge("holdfast_job_goodput_ratio")
    return light(words, bad_below("percentunit", GOAL, 0.7), [now(goodput, NAME)])


def _shown() -> Json:
    words = Words(
        "Goodput, time shown",
        "The same for the time shown: choose an hour, a day, a week above.",
        "Well below the whole run's: something is wrong now.",
        RUN,
        ("run",),
    )
    return light(words, bad_below("percentunit", GOAL, 0.7), [now(shown_goodput(), NAME)])


def _ettr() -> Json:
    words = Words(
        "ETTR",
        "Effective training time: of the run, all time in which it trained, however well, without "
        "what had to be trained again.",
        "Well above goodput: it trains, but badly; waiting for data, stragglers and saving are "
        "between the two.",
        RUN,
        ("run",),
    )
    ettr = gauge("holdfast_job_ettr_ratio")
    return light(words, bad_below("percentunit", GOAL, 0.7), [now(ettr, NAME)])


def _between() -> Json:
    words = Hint(
        "Between failures",
        "Mean time of training between failures. No data: none yet.",
        "Shorter than an hour on few nodes: *What was lost, to whom?* shows "
        "whether it is one machine.",
        RUN,
        ("run",),
    )
    mtbf = gauge("holdfast_job_mtbf_seconds")
    return figure(words, Scale("dtdurations", decimals=0), [now(mtbf, NAME)])


def _lost_hours() -> Json:
    words = Hint(
        "GPU hours lost",
        "In the time shown: no training, or training that had to be done again.",
        "*What kept it down* has the parts.",
        RUN,
        ("run",),
    )
    scale = Scale("suffix: GPU h", decimals=1)
    return figure(words, scale, [now(gpu_hours_lost(), NAME)])


def _money() -> Json:
    price = f"max by (cluster, run, currency) ({of_run('holdfast_job_gpu_hour_price')})"
    spent = f"({gpu_hours_lost()}) * on (cluster, run) group_right () {price}"
    words = Hint(
        "Lost, in money",
        "The same at `cost.per_gpu_hour`. No data: no price is set.",
        "Set the price in holdfast.toml to see it.",
        RUN,
        ("run",),
    )
    return figure(words, Scale("short", decimals=0), [now(spent, "{{run}} ({{currency}})")])


def _over_time() -> Json:
    productive = _rate("holdfast_job_time_seconds_total", 'category="productive"')
    lost = _rate("holdfast_job_lost_work_seconds_total")
    everything = _rate("holdfast_job_time_seconds_total", 'category!="queued"')
    words = Words(
        "Goodput over time",
        "Training less what had to be done again, of all time. Work that a failure made worthless "
        "is taken off at the moment when that is known.",
        "Dips are restarts: the marks above say which. A step down that stays is waiting or "
        "slowness.",
        RUN,
        ("run",),
    )
    goal = bad_below("percentunit", GOAL, 0.7)
    scale = Scale("percentunit", least=0, most=1, steps=goal.steps)
    query = over_time(f"clamp_min({productive} - {lost}, 0) / ({everything} > 0)", NAME)
    return lines(words, scale, [query], Style(limits=True))


def _bad() -> Json:
    words = Hint(
        "What kept it down",
        "GPU hours in the time shown that were no training, by category.",
        "The longest bar gains most.",
        RUN,
    )
    lost = gained("holdfast_job_gpu_time_seconds_total", "by (category)", UNPRODUCTIVE)
    scale = Scale("suffix: GPU h", least=0, decimals=2, colours=CATEGORIES)
    return bars(words, scale, [now(f"sort_desc({lost} / 3600)", "{{category}}")])


def _rate(metric: str, more: str = "") -> str:
    return f"sum {PER_RUN} (rate({of_run(metric, more)}[$__rate_interval]))"
