"""Of ranks: a line of single values, and where a step's time goes."""

from __future__ import annotations

from builders.colours import GOOD, PHASES, WATCH
from builders.goodput import ranks_missing
from builders.grid import Placed
from builders.lights import bad_from, counted, figure, light
from builders.lines import Style, lines
from builders.names import NODE, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.rank_measures import behind, slowdown
from builders.selecting import PER_RUN, gauge, of_run


def panels() -> list[Placed]:
    """Six values, then the phases' shares."""
    made = (_missing(), _slow(), _worst(), _gain(), _step(), _behind())
    return [*(Placed(one, 4, 4) for one in made), Placed(_where(), 12, 7), Placed(_spread(), 12, 7)]


def _missing() -> Json:
    words = Words(
        "Ranks missing",
        "Ranks that the plan counts on and no sidecar sees alive.",
        "Seconds belong to a restart. Longer: which node is it? See *By name* below.",
        RUN,
    )
    return counted(words, ranks_missing())


def _slow() -> Json:
    words = Words(
        "Slow ranks",
        "Ranks that are judged slow: for long enough, by enough, with their cause.",
        "*Who is slow, and why* below; `holdfast explain --slow` has the evidence.",
        RUN,
    )
    scale = Scale("none", steps=((None, GOOD), (1, WATCH)))
    return light(words, scale, [now(gauge("holdfast_job_slow_ranks"))])


def _worst() -> Json:
    words = Words(
        "Slowest against median",
        "Own time of the slowest rank against the median rank's: 100 % is as fast.",
        "The heat maps show who and since when.",
        RUN,
    )
    scale = bad_from("percentunit", 1.5, 1.15)
    return light(words, scale, [now(f"max {PER_RUN} ({slowdown()})")])


def _gain() -> Json:
    words = Words(
        "Faster without it",
        "By how much the job would be faster without the one rank that slows it most. No data: "
        "none does.",
        "Where a spare waits it takes the place by itself once that is worth a restart "
        "(`policy.replace_slow_after_s`).",
        RUN,
    )
    gain = gauge("holdfast_job_slowdown_gain_ratio")
    return light(words, bad_from("percentunit", 0.15, 0.05), [now(gain)])


def _step() -> Json:
    seconds = of_run("holdfast_rank_step_seconds")
    words = Hint(
        "Step time",
        "Wall time of a step, of the median rank.",
        "*The training loop* of the run shows how it changed.",
        RUN,
    )
    return figure(words, Scale("s", decimals=1), [now(f"quantile {PER_RUN} (0.5, {seconds})")])


def _behind() -> Json:
    words = Words(
        "Furthest behind",
        "Steps that the last rank is behind the first.",
        "More than one or two in a job that runs in step: that rank hangs, or is starting.",
        RUN,
    )
    return light(words, bad_from("none", 5, 2), [now(f"max {PER_RUN} ({behind()})")])


def _where() -> Json:
    spent = (
        f"sum by (phase) (rate({of_run('holdfast_rank_phase_seconds_total')}[$__rate_interval]))"
    )
    words = Hint(
        "Where a step's time goes",
        "Of all ranks' steps together, by phase; short steps are measured now and then only.",
        "Yellow growing: somebody is waited for. Light blue: input.",
        RUN,
    )
    scale = Scale("percentunit", least=0, most=1, colours=dict(PHASES.values()))
    style = Style("percent", legend_at="right")
    return lines(words, scale, [over_time(spent, "{{phase}}")], style)


def _spread() -> Json:
    own = of_run("holdfast_rank_own_seconds")
    words = Hint(
        "Own time of the ranks",
        "Without waiting for others: the fastest rank, the median, 95 %, the slowest.",
        "The slowest away from 95 %: one culprit. Both away from the median: "
        "many, so a shared cause.",
        NODE,
    )
    queries = [
        over_time(f"max ({own})", "slowest"),
        over_time(f"quantile (0.95, {own})", "95 %"),
        over_time(f"quantile (0.5, {own})", "median"),
        over_time(f"min ({own})", "fastest"),
    ]
    return lines(words, Scale("s", least=0), queries)
