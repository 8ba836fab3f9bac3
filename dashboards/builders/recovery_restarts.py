"""Of recovery: restarts, and what the mean one takes from detection to the first new step."""

from __future__ import annotations

from builders.colours import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from builders.grid import Placed
from builders.lights import bad_from, bars, light
from builders.lines import Style, lines
from builders.meanings import STATE_WORDS, state_number
from builders.names import RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.rows_by_time import states
from builders.selecting import gained, gauge, of_run

PHASES = {
    "detect": VERMILION,
    "drain": ORANGE,
    "rendezvous": PURPLE,
    "restore": BLUE,
    "first_step": GREEN,
}

SLOW_S = 120.0
"""A restart in place takes seconds, one with state from storage a minute or two."""


def panels() -> list[Placed]:
    """Two values, the mean recovery's parts, causes; then states and parts over time."""
    return [
        Placed(_newest(), 4, 8),
        Placed(_parts(), 10, 8),
        Placed(_causes(), 10, 8),
        Placed(_states(), 12, 7),
        Placed(_trend(), 12, 7),
    ]


def _newest() -> Json:
    words = Words(
        "Newest recovery",
        "From its first sign to every rank stepping again.",
        "The parts beside it say where the time goes.",
        RUN,
        ("run",),
    )
    took = gauge("holdfast_job_last_recovery_duration_seconds")
    scale = bad_from("s", 5 * SLOW_S, SLOW_S)
    return light(words, scale, [now(took, "{{run}}")])


def _parts() -> Json:
    words = Hint(
        "A recovery's parts",
        "Of the mean recovery in the time shown: detecting, draining and ending, meeting again, "
        "loading state, the first step. No data: none in that time.",
        "*detect*: see `holdfast doctor` for the timeouts. *restore*: snapshots "
        "and peer copies load faster than storage. *rendezvous*: a node is awaited.",
        RUN,
    )
    total = gained("holdfast_job_recovery_phase_seconds_sum", "by (phase)")
    count = gained("holdfast_job_recovery_phase_seconds_count", "by (phase)")
    scale = Scale("s", least=0, decimals=1, colours=PHASES)
    return bars(words, scale, [now(f"{total} / ({count} > 0)", "{{phase}}")])


def _causes() -> Json:
    words = Hint(
        "Incidents by cause",
        "In the time shown.",
        "`crash` again and again at the same step is the script's; the same node "
        "again and again is the machine's.",
        RUN,
    )
    incidents = gained("holdfast_job_incidents_total", "by (cause)")
    scale = Scale("none", least=0, decimals=0)
    return bars(words, scale, [now(f"sort_desc({incidents} > 0.5)", "{{cause}}")])


def _states() -> Json:
    words = Words(
        "States",
        "The runs' states over time: each orange piece is a restart.",
        "Minutes of orange: it waits for a node or for storage; `holdfast status` says for what.",
        RUN,
        ("run",),
    )
    scale = Scale("none", words=(STATE_WORDS,))
    return states(words, scale, [over_time(state_number(), "{{run}}")])


def _trend() -> Json:
    metric = of_run("holdfast_job_recovery_phase_seconds_sum")
    words = Hint(
        "Recovering, over time",
        "Seconds of recovery a second, by part: 1 is a run that does nothing else.",
        "Bars close to each other: a crash loop; stop it and look.",
        RUN,
    )
    spent = f"sum by (phase) (rate({metric}[$__rate_interval]))"
    scale = Scale("percentunit", least=0, colours=PHASES)
    return lines(words, scale, [over_time(spent, "{{phase}}")], Style("normal", bars=True))
