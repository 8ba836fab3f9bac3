"""Of the sidecars: who answers, who leads, what is blind."""

from __future__ import annotations

from builders.grid import Placed
from builders.lights import bad_from, counted, increased, noted
from builders.lines import Style, lines
from builders.meanings import YES_NO
from builders.names import NODE, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import over_time
from builders.rows_by_time import states
from builders.selecting import (
    PER_NODE,
    PER_RUN,
    gauge,
    node_gained,
    node_gauge,
    of_node,
    of_run,
    or_zero,
)
from builders.tables import Column, Hidden, table


def panels() -> list[Placed]:
    """Six lights; leaders, heartbeats; every sidecar; probes that see nothing."""
    lit = (_down(), _store(), _leaders(), _probes(), _failed(), _hooks())
    return [
        *(Placed(one, 4, 4) for one in lit),
        Placed(_leader(), 12, 8),
        Placed(_heartbeats(), 12, 8),
        Placed(_every_sidecar(), 14, 10),
        Placed(_blind(), 10, 10),
    ]


def _down() -> Json:
    words = Words(
        "Sidecars that don't answer",
        "Of those that Prometheus has found; a lost node stays listed for an hour.",
        "Ranks go on without it. `systemctl status`, or the run's console, on that node; a lost "
        "node is told by its heartbeat below.",
        RUN,
    )
    return counted(words, _how_many(node_gauge("up", how="min"), "== 0"))


def _store() -> Json:
    words = Words(
        "Without Redis",
        "Nodes that the coordination server does not answer.",
        "Training goes on, but nothing that concerns several nodes is decided, and no "
        "coordinated checkpoint is made: bring Redis back.",
        RUN,
    )
    return counted(words, _how_many(node_gauge("holdfast_store_up", how="min"), "== 0"))


def _leaders() -> Json:
    words = Words(
        "Runs without one leader",
        "Runs in which not exactly one sidecar leads.",
        "None for longer than a lease: nobody decides; is Redis there? Two: their epochs differ, "
        "orders of the older are refused.",
        RUN,
    )
    leads = f"sum {PER_RUN} ({of_run('holdfast_node_is_leader')})"
    return counted(words, _how_many(leads, "!= 1"))


def _probes() -> Json:
    words = Words(
        "Blind probes",
        "Probes that can't read what they are there to read.",
        "The table *What is not seen* names them; `holdfast doctor` on that node says what is "
        "missing.",
        NODE,
    )
    up = node_gauge("holdfast_probe_up", per="by (cluster, run, node, probe)", how="min")
    # Without a right that nobody granted it is so for ever: worth knowing, not red.
    return noted(words, _how_many(up, "== 0"))


def _failed() -> Json:
    words = Words(
        "Failed rounds",
        "Rounds of sidecars that ended in an error of their own, in the time shown.",
        "A bug of Holdfast's: the sidecar's log has the traceback. Please report it.",
        RUN,
    )
    return increased(words, _all("holdfast_sidecar_failed_ticks_total"))


def _hooks() -> Json:
    words = Words(
        "Errors of hooks",
        "Errors inside ranks that the hooks' guard caught, in the time shown. Training was not "
        "touched.",
        "A bug of Holdfast's: the rank's log has one line for each kind. Please report it.",
        RUN,
    )
    return increased(words, _all("holdfast_rank_hook_errors_total"))


def _leader() -> Json:
    leads = f"max by (node) ({of_node('holdfast_node_is_leader')} == 1)"
    words = Hint(
        "Who leads",
        "One row for each node that led in the time shown.",
        "Changing again and again: Redis or the network between it and the nodes is unwell.",
        RUN,
    )
    scale = Scale("none", words=(YES_NO,))
    return states(words, scale, [over_time(leads, "{{node}}")])


def _heartbeats() -> Json:
    seen = gauge("holdfast_node_last_heartbeat_timestamp_seconds", per=PER_NODE)
    words = Words(
        "Age of heartbeats",
        "As the leaders see them: the ten oldest. It goes on for a node that is dead.",
        "From 30 s on the node counts as lost: is the machine reachable?",
        NODE,
        ("run", "node"),
    )
    query = over_time(f"topk(10, time() - {seen})", "{{node}}")
    return lines(words, bad_from("s", 30, 10), [query], Style(limits=True))


def _every_sidecar() -> Json:
    info = of_node("holdfast_sidecar_info")
    named = f"max by (run, node, version, mode) ({info})"
    started = _with_info("holdfast_sidecar_start_timestamp_seconds")
    words = Words(
        "Every sidecar",
        "Its version, what it may do (`act`, `suggest`, `observe`), and since when it runs.",
        "Different versions in one run: end the update. Started a moment ago: it was restarted; "
        "its log says why.",
        NODE,
        ("run", "node"),
    )
    columns = [
        Hidden("", named, Scale("")),
        Column("Started", f"{started} * 1000", Scale("dateTimeFromNow")),
        Column("Epoch", _with_info("holdfast_leader_epoch"), Scale("none", decimals=0)),
        Column("Launcher", _with_info("holdfast_node_launcher_up"), Scale("none", words=(YES_NO,))),
    ]
    return table(words, ("node", "run", "version", "mode"), columns, "Started")


def _blind() -> Json:
    up = f"min by (run, node, probe) ({of_node('holdfast_probe_up')})"
    failures = node_gained("holdfast_probe_failures_total", "by (run, node, probe)")
    words = Words(
        "What is not seen",
        "Probes and whether they read; failures are of the time shown.",
        "A GPU probe: the driver hangs or is away. Others mostly lack a right: `holdfast doctor`.",
        NODE,
        ("run", "node"),
    )
    columns = [
        Column("Reads", f"{up} < 1", Scale("none", words=(YES_NO,))),
        Column("Failures", f"{failures} > 0", Scale("none", decimals=0)),
    ]
    return table(words, ("node", "probe", "run"), columns, "Failures")


def _with_info(metric: str) -> str:
    """A node's gauge with the labels that say what its sidecar is, so that it lands in its row."""
    info = f"max by (run, node, version, mode) ({of_node('holdfast_sidecar_info')})"
    value = f"max by (run, node) ({of_node(metric)})"
    return f"{info} * on (run, node) group_left () {value}"


def _how_many(known: str, condition: str) -> str:
    """0 when none of what is known meets it."""
    return or_zero(f"count({known} {condition})", f"count({known})")


def _all(counter: str) -> str:
    """What it gained in the time that is shown, in all."""
    return f"sum(increase({of_node(counter)}[$__range]))"
