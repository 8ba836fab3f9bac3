"""Of a run: traffic lights, and its states over time."""

from __future__ import annotations

from builders.goodput import checkpoint_lateness, open_incidents, ranks_missing, shown_goodput
from builders.grid import Placed
from builders.lights import bad_below, bad_from, counted, figure, increased, light, noted
from builders.meanings import NO_YES, STATE_WORDS, state_number
from builders.names import FLEET, NODE, RANKS, RECOVERY, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.rows_by_time import states
from builders.selecting import gauge, of_run
from builders.tables import Hidden, table

NAME = "{{run}}"


def panels() -> list[Placed]:
    """Two lines of lights, then the states and what is open."""
    first = (_state(), _ranks(), _incidents(), _checkpoint(), _goodput(), _budget())
    second = (_step(), _mfu(), _tokens(), _nonfinite(), _slow(), _paused())
    lit = [Placed(one, 4, 4) for one in (*first, *second)]
    return [*lit, Placed(_states(), 12, 5), Placed(_open(), 12, 5)]


def _state() -> Json:
    words = Words(
        "State",
        "What the leader wants of everyone: training, keeping evidence, restarting, done, stopped.",
        "Stopped: Holdfast gave up on purpose; `holdfast explain --job RUN` says why. "
        "Restarting for minutes: `holdfast status` says what it waits for.",
        RECOVERY,
        ("run",),
    )
    return light(words, Scale("none", words=(STATE_WORDS,)), [now(state_number(), NAME)])


def _ranks() -> Json:
    words = Words(
        "Ranks missing",
        "Ranks that the plan counts on and no sidecar sees alive.",
        "Seconds belong to a restart. Longer: a node is gone or its sidecar is; see *Holdfast "
        "itself*.",
        RANKS,
        ("run",),
    )
    return counted(words, ranks_missing(), NAME)


def _incidents() -> Json:
    words = Words(
        "Open incidents",
        "Failures that are not over.",
        "*What is open* beside the states names cause and machine; `holdfast explain` tells "
        "the story.",
        RECOVERY,
        ("run",),
    )
    return counted(words, open_incidents(), NAME)


def _checkpoint() -> Json:
    words = Words(
        "Checkpoint is late by",
        "Age of the newest durable checkpoint, in intervals that are aimed at.",
        "From 2 on as much work is at risk as in two intervals: is storage slow or full? "
        "`holdfast checkpoint now` asks for one and says what it waits for.",
        RECOVERY,
        ("run",),
    )
    return light(words, bad_from("suffix: ×", 2, 1.5), [now(checkpoint_lateness(), NAME)])


def _goodput() -> Json:
    words = Words(
        "Goodput",
        "Of the time shown: training that counted, of all time since the first node was there.",
        "The partition below says what took the rest.",
        RECOVERY,
        ("run",),
    )
    scale = bad_below("percentunit", 0.9, 0.7)
    return light(words, scale, [now(shown_goodput(), NAME)])


def _budget() -> Json:
    words = Words(
        "Restarts left",
        "The least that is left of the budget of any cause; at 0 the next failure of that "
        "cause stops the run.",
        "A person has to look before it is 0: the same cause comes again and again. "
        "`holdfast incidents` lists them.",
        RECOVERY,
        ("run",),
    )
    left = gauge("holdfast_job_restart_budget_remaining")
    return light(words, bad_below("none", 2, 1), [now(left, NAME)])


def _step() -> Json:
    words = Hint(
        "Step",
        "Steps that every rank has completed.",
        "Standing still while the state is *training*: see *Ranks × time*.",
        RANKS,
        ("run",),
    )
    scale = Scale("none", decimals=0)
    return figure(words, scale, [now(gauge("holdfast_job_step"), NAME)])


def _mfu() -> Json:
    words = Hint(
        "MFU",
        "Of what the devices could do, what the model needed. No data: the operations of a step "
        "or the devices' peak are not known.",
        "What is good differs by model. `holdfast report` says what keeps it down.",
        RANKS,
        ("run",),
    )
    mfu = gauge("holdfast_job_mfu_ratio")
    return figure(words, Scale("percentunit", decimals=1), [now(mfu, NAME)])


def _tokens() -> Json:
    words = Hint(
        "Tokens a second",
        "Tokens that all ranks train on. No data: the script reports none.",
        "See *Pace* for how it changed.",
        RANKS,
        ("run",),
    )
    tokens = gauge("holdfast_job_tokens_per_second")
    return figure(words, Scale("short", decimals=1), [now(tokens, NAME)])


def _nonfinite() -> Json:
    gained = " + ".join(
        f"sum by (cluster, run) (increase({of_run(metric)}[$__range]))"
        for metric in (
            "holdfast_rank_nonfinite_losses_total",
            "holdfast_rank_nonfinite_gradients_total",
        )
    )
    words = Words(
        "NaN or Inf",
        "Losses and gradient norms that were not finite in the time shown, of all ranks.",
        "Does the run resume from before them? `holdfast explain` names the first step and the "
        "rank: one rank alone points at its device.",
        RECOVERY,
        ("run",),
    )
    return increased(words, gained, NAME)


def _slow() -> Json:
    words = Words(
        "Slow ranks",
        "Ranks that are slower than they should be.",
        "`holdfast explain --slow` names the rank, the cause and what helps.",
        RANKS,
        ("run",),
    )
    return noted(words, gauge("holdfast_job_slow_ranks"), NAME)


def _paused() -> Json:
    words = Words(
        "Paused",
        "Whether somebody has paused it: no fault is acted on then.",
        "`holdfast status` says who and until when; `holdfast resume` ends it.",
        FLEET,
        ("run",),
    )
    return light(words, Scale("none", words=(NO_YES,)), [now(gauge("holdfast_job_paused"), NAME)])


def _states() -> Json:
    words = Words(
        "States",
        "The run's state over time. A gap: no sidecar told of it.",
        "*Checkpoints and recovery* splits each restart into its parts.",
        RECOVERY,
        ("run",),
    )
    scale = Scale("none", words=(STATE_WORDS,))
    return states(words, scale, [over_time(state_number(), NAME)])


def _open() -> Json:
    told = (
        "max by (run, cause, node, decided, incident) ("
        f"{of_run('holdfast_job_open_incident_info')})"
    )
    words = Words(
        "What is open",
        "Incidents that are not over, with the machine that is to blame if one is.",
        "`holdfast explain INCIDENT` says what happened, who did it and what to do next.",
        NODE,
        ("run",),
    )
    labels = ("run", "cause", "node", "decided", "incident")
    return table(words, labels, [Hidden("", told, Scale(""))], "run")
