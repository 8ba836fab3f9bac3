"""Of a run: its steps, its numbers, and who slows it."""

from __future__ import annotations

from builders.grid import Placed
from builders.lights import bars
from builders.lines import Style, lines, one_line
from builders.names import RANKS, RECOVERY, Json
from builders.panel import Hint, Scale, Words
from builders.query import Query, now, over_time
from builders.selecting import PER_RUN, gained, gauge, of_run

RUN = "{{run}}"
ITS_RANKS = (RANKS, ("run",))
ITS_RECOVERY = (RECOVERY, ("run",))
"""Where a click on a run's line leads."""

MEDIAN, MOST = "quantile {} (0.5, {})", "max {} ({})"


def loop() -> list[Placed]:
    """Step time, tokens, loss, gradient norm."""
    made = (_step_time(), _tokens(), _loss(), _gradient())
    return [Placed(one, 12, 8) for one in made]


def slowness() -> list[Placed]:
    """How many are slow, what it costs, why."""
    return [Placed(one, 8, 8) for one in (_slow(), _gain(), _slowed())]


def _step_time() -> Json:
    words = Hint(
        "Step time",
        "Wall time of a step: of the median rank, of 95 %, of the slowest.",
        "All three rise together: everyone is slower. Only the slowest does: a "
        "straggler that does not hold the others up yet.",
        *ITS_RANKS,
    )
    shown = {"median": MEDIAN, "95 %": "quantile {} (0.95, {})", "slowest": MOST}
    return lines(words, Scale("s", least=0), _spread("holdfast_rank_step_seconds", shown))


def _loss() -> Json:
    words = Hint(
        "Loss",
        "As reported: the median rank's, and the range over ranks. A gap is NaN, Inf, or nothing "
        "reported.",
        "One rank far from the others: suspect its data or its device. All of "
        "them up: learning rate or batch.",
        *ITS_RECOVERY,
    )
    shown = {"median": MEDIAN, "least": "min {} ({})", "most": MOST}
    return lines(words, Scale("none"), _spread("holdfast_rank_loss", shown), Style(axis="symlog"))


def _gradient() -> Json:
    words = Hint(
        "Gradient norm",
        "The median rank's, and the most of any.",
        "Spikes before NaN are the usual order; *NaN or Inf* above counts those.",
        *ITS_RECOVERY,
    )
    spread = _spread("holdfast_rank_gradient_norm", {"median": MEDIAN, "most": MOST})
    return lines(words, Scale("none"), spread, Style(axis="log"))


def _tokens() -> Json:
    words = Hint(
        "Throughput",
        "Tokens a second that all ranks train on; the best single number for how fast the run is.",
        "Lower after a restart: fewer nodes? See *Nodes* under *Fleet*.",
        *ITS_RANKS,
    )
    return one_line(words, "short", gauge("holdfast_job_tokens_per_second"), RUN)


def _slow() -> Json:
    words = Words(
        "Slow ranks, over time",
        "Ranks that are slower than they should be.",
        "`holdfast explain --slow` names each, with cause and evidence.",
        *ITS_RANKS,
    )
    return one_line(words, "none", gauge("holdfast_job_slow_ranks"), RUN)


def _gain() -> Json:
    words = Words(
        "What the slowest costs",
        "By how much the job would be faster without the one rank that slows it most. A gap: "
        "none does.",
        "From some 10 % on a spare's place is worth a restart: `policy.replace_slow_after_s`.",
        *ITS_RANKS,
    )
    return one_line(words, "percentunit", gauge("holdfast_job_slowdown_gain_ratio"), RUN)


def _slowed() -> Json:
    slowed = gained("holdfast_job_slowed_seconds_total", "by (cause)")
    words = Hint(
        "Slowed by",
        "Time of the whole job that slowness cost in the time shown, by its cause.",
        "GPU causes: *Node health*. `data_loading`, `collector`, `evaluation`, "
        "`saving`: the script.",
        RANKS,
    )
    return bars(words, Scale("s", least=0), [now(f"sort_desc({slowed} > 0)", "{{cause}}")])


def _spread(metric: str, shown: dict[str, str]) -> list[Query]:
    """How the ranks of each run differ in it. shown: word -> way to sum ranks up."""
    of_ranks = of_run(metric)
    return [
        over_time(way.format(PER_RUN, of_ranks), f"{RUN}: {word}") for word, way in shown.items()
    ]
