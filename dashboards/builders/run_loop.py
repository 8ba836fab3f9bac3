"""Of a run: its steps, its numbers, and who slows it."""

from __future__ import annotations

from builders.grid import Placed
from builders.lights import bars
from builders.lines import Style, lines
from builders.names import RANKS, RECOVERY, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import PER_RUN, gained, gauge, of_run

ORDER = "{{run}}: "


def loop() -> list[Placed]:
    """Step time, tokens, loss, gradient norm."""
    made = (_step_time(), _tokens(), _loss(), _gradient())
    return [Placed(one, 12, 8) for one in made]


def slowness() -> list[Placed]:
    """How many are slow, what it costs, why."""
    return [Placed(_slow(), 8, 8), Placed(_gain(), 8, 8), Placed(_slowed(), 8, 8)]


def _step_time() -> Json:
    seconds = of_run("holdfast_rank_step_seconds")
    words = Hint(
        "Step time",
        "Wall time of a step: of the median rank, of 95 %, of the slowest.",
        "All three rise together: everyone is slower. Only the slowest does: a "
        "straggler that does not hold the others up yet.",
        RANKS,
        ("run",),
    )
    queries = [
        over_time(f"quantile {PER_RUN} (0.5, {seconds})", f"{ORDER}median"),
        over_time(f"quantile {PER_RUN} (0.95, {seconds})", f"{ORDER}95 %"),
        over_time(f"max {PER_RUN} ({seconds})", f"{ORDER}slowest"),
    ]
    return lines(words, Scale("s", least=0), queries)


def _tokens() -> Json:
    words = Hint(
        "Throughput",
        "Tokens a second that all ranks train on; the best single number for how fast the run is.",
        "Lower after a restart: fewer nodes? See *Nodes* under *Fleet*.",
        RANKS,
        ("run",),
    )
    tokens = gauge("holdfast_job_tokens_per_second")
    return lines(words, Scale("short", least=0), [over_time(tokens, "{{run}}")])


def _loss() -> Json:
    loss = of_run("holdfast_rank_loss")
    words = Hint(
        "Loss",
        "As reported: the median rank's, and the range over ranks. A gap is NaN, Inf, or nothing "
        "reported.",
        "One rank far from the others: suspect its data or its device. All of "
        "them up: learning rate or batch.",
        RECOVERY,
        ("run",),
    )
    queries = [
        over_time(f"quantile {PER_RUN} (0.5, {loss})", f"{ORDER}median"),
        over_time(f"min {PER_RUN} ({loss})", f"{ORDER}least"),
        over_time(f"max {PER_RUN} ({loss})", f"{ORDER}most"),
    ]
    return lines(words, Scale("none"), queries, Style(axis="symlog"))


def _gradient() -> Json:
    norm = of_run("holdfast_rank_gradient_norm")
    words = Hint(
        "Gradient norm",
        "The median rank's, and the most of any.",
        "Spikes before NaN are the usual order; *NaN or Inf* above counts those.",
        RECOVERY,
        ("run",),
    )
    queries = [
        over_time(f"quantile {PER_RUN} (0.5, {norm})", f"{ORDER}median"),
        over_time(f"max {PER_RUN} ({norm})", f"{ORDER}most"),
    ]
    return lines(words, Scale("none"), queries, Style(axis="log"))


def _slow() -> Json:
    words = Words(
        "Slow ranks, over time",
        "Ranks that are slower than they should be.",
        "`holdfast explain --slow` names each, with cause and evidence.",
        RANKS,
        ("run",),
    )
    slow = gauge("holdfast_job_slow_ranks")
    return lines(words, Scale("none", least=0), [over_time(slow, "{{run}}")])


def _gain() -> Json:
    words = Words(
        "What the slowest costs",
        "By how much the job would be faster without the one rank that slows it most. A gap: "
        "none does.",
        "From some 10 % on a spare's place is worth a restart: `policy.replace_slow_after_s`.",
        RANKS,
        ("run",),
    )
    gain = gauge("holdfast_job_slowdown_gain_ratio")
    return lines(words, Scale("percentunit", least=0), [over_time(gain, "{{run}}")])


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
