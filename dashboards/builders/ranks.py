"""Ranks by time: who is slow, who waits, what each is doing; for 8 ranks and for 1,024."""

from __future__ import annotations

from builders import rank_maps, rank_numbers, rank_tables
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import RANKS, Json
from builders.variables import CLUSTER, JOB, NODES, ONE_RUN, choice


def ranks() -> Json:
    """Nodes first, as a thousand rows say nothing; then the ranks that matter, or all of a node."""
    title = Title(
        RANKS,
        "Holdfast / Ranks × time",
        "Who holds the others up: which node, which of its ranks, since when, doing what?",
    )
    rows = [
        Row("Now", rank_numbers.panels()),
        Row("Nodes × time: click a row, or choose nodes above", rank_maps.nodes()),
        Row("Ranks × time: the slowest $ranks of the chosen nodes", rank_maps.ranks()),
        Row("What each is doing: the $ranks whose newest step is oldest", rank_maps.phases()),
        Row("By name", rank_tables.panels()),
    ]
    shown = choice("ranks", "Ranks shown", ("16", "32", "64", "128", "1024"), "32")
    return dashboard(title, [JOB, CLUSTER, ONE_RUN, NODES, shown], rows)
