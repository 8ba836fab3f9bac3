"""Of ranks: tables with names, and a bar for each of the slowest."""

from __future__ import annotations

from builders.colours import BAD, GOOD, WATCH
from builders.grid import Placed
from builders.lights import bad_below, bad_from, bars
from builders.meanings import PHASE_WORDS, YES_NO
from builders.names import NODE, Json
from builders.panel import Scale, Words
from builders.query import now
from builders.rank_measures import behind, slowdown, waiting
from builders.selecting import PER_GPU, PER_RANK, node_gauge, of_node
from builders.tables import Column, table


def panels() -> list[Placed]:
    """The slowest as bars, those that are judged slow, and every rank with its GPU."""
    return [Placed(_bars(), 8, 11), Placed(_judged(), 16, 11), Placed(_every_rank(), 24, 14)]


def _bars() -> Json:
    slowest = f"topk(16, max by (node, rank) ({slowdown()}))"
    words = Words(
        "The 16 slowest",
        "Own time against the median rank's, now.",
        "Click a bar for its machine's health.",
        NODE,
        ("node",),
    )
    scale = Scale("percentunit", least=0, steps=((None, GOOD), (1.15, WATCH), (1.5, BAD)))
    return bars(words, scale, [now(f"sort_desc({slowest})", "rank {{rank}} on {{node}}")])


def _judged() -> Json:
    slower = f"max by (run, node, rank, cause) ({of_node('holdfast_rank_slowdown_ratio')})"
    words = Words(
        "Who is slow, and why",
        "Ranks that are judged slow, with the cause that fits what was measured. Empty: none is.",
        "`holdfast explain --slow` says what helps, and what it would gain.",
        NODE,
        ("run", "node"),
    )
    column = Column("Slower by", slower, bad_from("percentunit", 0.3, 0.1))
    return table(words, ("rank", "node", "cause", "run"), [column], "Slower by")


def _every_rank() -> Json:
    stepped = node_gauge("holdfast_rank_last_step_timestamp_seconds", per=PER_RANK)
    words = Words(
        "Every rank",
        "One row for each rank of the chosen nodes; the furthest behind first.",
        "Not up: its process is gone, its exit code is in `holdfast explain`. A clock far below "
        "the others' is a slow GPU without any error.",
        NODE,
        ("run", "node"),
    )
    none = Scale("none", decimals=0)
    columns = [
        Column("Behind", f"max {PER_RANK} ({behind()})", bad_from("none", 5, 2)),
        Column("Up", node_gauge("holdfast_rank_up", per=PER_RANK), Scale("none", words=(YES_NO,))),
        Column("Phase", node_gauge("holdfast_rank_phase_id", per=PER_RANK), _phase()),
        Column("Stepped", f"{stepped} * 1000", Scale("dateTimeFromNow")),
        Column("Step", node_gauge("holdfast_rank_step", per=PER_RANK), none),
        Column(
            "Against median", f"max {PER_RANK} ({slowdown()})", bad_from("percentunit", 1.5, 1.15)
        ),
        Column("Waits", f"max {PER_RANK} ({waiting()})", Scale("percentunit", decimals=0)),
        Column("GPU clock", _of_its_gpu("holdfast_gpu_sm_clock_hertz"), Scale("hertz", decimals=2)),
        Column("GPU margin", _of_its_gpu("holdfast_gpu_temperature_margin_celsius"), _margin()),
    ]
    return table(words, ("rank", "node", "run", "cluster"), columns, "Behind")


def _of_its_gpu(metric: str) -> str:
    """A GPU's gauge by the ranks on it."""
    whose = of_node("holdfast_gpu_rank_info")
    value = node_gauge(metric, per=PER_GPU)
    return f"max {PER_RANK} ({whose} * on (cluster, run, node, gpu) group_left () {value})"


def _phase() -> Scale:
    return Scale("none", words=(PHASE_WORDS,))


def _margin() -> Scale:
    """Where it slows itself down is 0 °C."""
    return bad_below("celsius", 5, 2)
