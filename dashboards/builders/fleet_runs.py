"""Of the fleet: runs with their state, what is open, machines."""

from __future__ import annotations

from builders.colours import BAD, GOOD, GREY, WATCH
from builders.goodput import (
    checkpoint_lateness,
    gpu_hours_lost,
    open_incidents,
    ranks_missing,
    shown_goodput,
)
from builders.grid import Placed
from builders.lights import bad_below, bad_from, bars, counted, figure
from builders.lines import lines
from builders.meanings import STATE_WORDS, state_number
from builders.names import NODE, RECOVERY, RUN, SELF, Json
from builders.panel import Hint, Scale, Words
from builders.query import now, over_time
from builders.selecting import PER_NODE, gained, gauge, of_run, or_zero
from builders.tables import Column, Hidden, table

HEARTBEAT_OLD_S = 30
"""As the alert on a silent sidecar has it."""


def lights() -> list[Placed]:
    """A line of single values."""
    return [Placed(one, 4, 4) for one in (_runs(), *_ill(), _spares(), _hours())]


def tables() -> list[Placed]:
    """Every run in a row; what fires; what is open."""
    return [Placed(_all_runs(), 24, 10), Placed(_firing(), 12, 8), Placed(_incidents(), 12, 8)]


def machines() -> list[Placed]:
    """Nodes that are there, and those that failed before."""
    return [Placed(_nodes(), 12, 8), Placed(_lemons(), 12, 8)]


def _runs() -> Json:
    words = Hint(
        "Runs",
        "Runs that a leading sidecar tells of now.",
        "Fewer than you started: see *Holdfast itself* for sidecars that are "
        "not scraped, and `holdfast status` on a node of the run.",
        SELF,
    )
    return figure(words, Scale("none"), [now(f"count({gauge('holdfast_job_attempt')})")])


def _ill() -> list[Json]:
    """What there should be none of."""
    incidents = Words(
        "Open incidents",
        "Failures that are not over: the run has not made a new step since.",
        "Open the run in the table below; `holdfast explain --job RUN` tells what happened and "
        "what is being done.",
        RUN,
    )
    missing = Words(
        "Ranks missing",
        "Ranks that plans count on and no sidecar sees alive.",
        "Seconds of it belong to a restart. Longer: sort the table by this column and open the "
        "run.",
        RUN,
    )
    silent = Words(
        "Nodes silent",
        f"Nodes of a run without a heartbeat for {HEARTBEAT_OLD_S} s, as the survivors see it.",
        "Is the machine reachable? If a spare took over, a ticket is enough: see the run.",
        SELF,
    )
    heard = gauge("holdfast_node_last_heartbeat_timestamp_seconds", per=PER_NODE)
    old = or_zero(f"count(time() - {heard} > {HEARTBEAT_OLD_S})", f"count({heard})")
    return [
        counted(incidents, f"sum({open_incidents()})"),
        counted(missing, f"sum({ranks_missing()})"),
        counted(silent, old),
    ]


def _spares() -> Json:
    words = Hint(
        "Spare nodes",
        "Nodes that wait to take the place of one that fails.",
        "0 means that the next lost node shrinks or stops a run: return "
        "repaired nodes with `holdfast node return`.",
        NODE,
    )
    return figure(words, Scale("none"), [now(f"sum({gauge('holdfast_job_nodes_spare')})")])


def _hours() -> Json:
    words = Hint(
        "GPU hours lost",
        "In the time shown: GPU time that was no training, and training that had to be done "
        "again. Ranks are counted where there are no GPUs.",
        "The row *Where did the GPU hours go?* has the parts.",
        RECOVERY,
    )
    return figure(words, Scale("suffix: GPU h", decimals=1), [now(f"sum({gpu_hours_lost()})")])


def _all_runs() -> Json:
    words = Words(
        "Every run",
        "One row for each run; goodput, restarts and lost hours are of the time shown.",
        "Click the run. *Late checkpoint* counts intervals: from 2 on nothing durable was "
        "written for twice as long as aimed at.",
        RUN,
        ("run",),
    )
    last = gauge("holdfast_job_last_incident_timestamp_seconds")
    columns = [
        Column("State", state_number(), Scale("none", words=(STATE_WORDS,))),
        Column("Goodput", shown_goodput(), bad_below("percentunit", 0.9, 0.7)),
        Column("MFU", gauge("holdfast_job_mfu_ratio"), Scale("percentunit", decimals=1)),
        Column("Late checkpoint", checkpoint_lateness(), bad_from("suffix: ×", 2, 1.5)),
        Column("Ranks missing", ranks_missing(), bad_from("none", 1)),
        Column("Slow ranks", gauge("holdfast_job_slow_ranks"), bad_from("none", 1e9, 1)),
        Column("Restarts", gained("holdfast_job_restarts_total"), Scale("none", decimals=0)),
        Column("Last incident", f"{last} * 1000", Scale("dateTimeFromNow")),
        Column("GPU hours lost", gpu_hours_lost(), Scale("none", decimals=1)),
        Column("Step", gauge("holdfast_job_step"), Scale("none", decimals=0)),
    ]
    return table(words, ("cluster", "run"), columns, "GPU hours lost")


def _firing() -> Json:
    # What Prometheus itself tells: no scrape job of ours made it.
    firing = (
        "max by (alertname, severity, cluster, run, node) ("
        'ALERTS{alertname=~"Holdfast.+", alertstate="firing", cluster=~"$cluster"})'
    )
    words = Words(
        "Alerts that fire",
        "Of Holdfast's rules, as Prometheus evaluates them. Empty where none fires, and where "
        "the rules are not loaded: HoldfastWatchdog always fires.",
        "Open the runbook of the alert's name; `severity=critical` pages, `warning` is a ticket.",
        RUN,
        ("run",),
    )
    labels = ("alertname", "severity", "cluster", "run", "node")
    return table(words, labels, [Hidden("", firing, Scale(""))], "severity")


def _incidents() -> Json:
    open_now = (
        "max by (cluster, run, node, cause, decided, incident) ("
        f"{of_run('holdfast_job_open_incident_info')})"
    )
    words = Words(
        "What is open",
        "Incidents that are not over: cause, the machine that is to blame if one is, and what "
        "was decided.",
        "`holdfast explain INCIDENT --job RUN` tells the story and what to do next.",
        RECOVERY,
        ("run",),
    )
    labels = ("run", "cause", "node", "decided", "incident", "cluster")
    return table(words, labels, [Hidden("", open_now, Scale(""))], "run")


def _nodes() -> Json:
    words = Hint(
        "Nodes",
        "Of all runs: nodes that plans count on, that wait as spares, that are kept outside.",
        "Expected ones falling while kept-out ones rise: machines are going "
        "bad faster than they come back.",
        NODE,
    )
    told = {
        "expected": "holdfast_job_nodes_expected",
        "spare": "holdfast_job_nodes_spare",
        "kept out": "holdfast_job_nodes_kept_out",
    }
    colours = {"expected": GOOD, "spare": GREY, "kept out": BAD}
    queries = [over_time(f"sum({gauge(metric)})", name) for name, metric in told.items()]
    return lines(words, Scale("none", least=0, colours=colours), queries)


def _lemons() -> Json:
    score = gauge("holdfast_node_lemon_score", per="by (cluster, node)")
    words = Words(
        "Machines that failed most",
        "The ten nodes against which most failures are held, older ones counting less.",
        "At `policy.blames_limit` (3 by default, rounded) a node is kept outside. Test it with "
        "`holdfast nodes test`, repair it, then `holdfast node return NODE`.",
        NODE,
        ("node",),
    )
    scale = Scale("none", least=0, decimals=2, steps=((None, GOOD), (1.5, WATCH), (2.5, BAD)))
    return bars(words, scale, [now(f"topk(10, {score})", "{{node}}")])
