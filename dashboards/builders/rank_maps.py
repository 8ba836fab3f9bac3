"""The picture: slowness and waiting side by side, of nodes and of ranks, and the phases below.

A culprit is bright in the left map and dark in the right one: it works while the others wait.
"""

from __future__ import annotations

from builders.grid import Placed
from builders.meanings import PHASE_WORDS
from builders.names import NODE, RANKS, Json
from builders.panel import Scale, Words
from builders.query import over_time
from builders.rank_measures import of_the_latest, of_the_slowest, slowdown, waiting
from builders.rows_by_time import Heat, heat, states
from builders.selecting import PER_NODE, of_node

SLOW = Heat(1, 1.5, "Inferno")
"""Ranks differ by a few percent when all is well; half again as long is as bright as it gets, so
that one hanging rank does not make all others look well."""

WAIT = Heat(0, 0.5, "Cividis")
"""Waiting for half of a step is as bright as it gets: a rank twice as slow costs others that."""

RATIO = Scale("percentunit", least=0)


def nodes() -> list[Placed]:
    """One row a node: 128 of them are 1,024 ranks."""
    slow = Words(
        "Slow: nodes",
        "The slowest rank of each node against the run's median: dark is as fast as the others, "
        "bright takes half as long again.",
        "One bright row: a machine; look at its health. All rows bright in one column: the "
        "median was fast there, look at step time. Click a row for its ranks.",
        RANKS,
        ("run", "node"),
    )
    wait = Words(
        "Waiting: nodes",
        "The share of a step that the node's busiest rank waits for others: yellow waits, dark "
        "works.",
        "A dark row among yellow ones is whom they wait for, also where no own time is known.",
        RANKS,
        ("run", "node"),
    )
    slowest, busiest = f"max {PER_NODE} ({slowdown()})", f"min {PER_NODE} ({waiting()})"
    return _side_by_side((slow, slowest), (wait, busiest), "{{node}}", 12)


def ranks() -> list[Placed]:
    """One row a rank."""
    slow = Words(
        "Slow: ranks",
        "Each rank against the run's median: dark is as fast as the others, bright takes half "
        "as long again. The ones that were slowest in the time shown have rows, in order of "
        "rank.",
        "`holdfast explain --slow` names the cause. Bright stripes that come and go: a throttled "
        "GPU, a collector, a neighbour on the host.",
        NODE,
    )
    wait = Words(
        "Waiting: ranks",
        "The same rows: the share of a step that the rank waits for others.",
        "The rank that is bright on the left and dark here is the one; the others are its victims.",
        NODE,
    )
    shown = (slow, of_the_slowest(slowdown())), (wait, of_the_slowest(waiting()))
    return _side_by_side(*shown, "{{rank}}", 14)


def phases() -> list[Placed]:
    """What they are doing, in the order of the page's phases."""
    return [Placed(_phases(), 24, 14)]


def _side_by_side(
    left: tuple[Words, str], right: tuple[Words, str], row: str, height: int
) -> list[Placed]:
    """Slowness and waiting of the same rows."""
    halves = ((*left, SLOW), (*right, WAIT))
    made = [heat(words, RATIO, [over_time(expr, row)], how) for words, expr, how in halves]
    return [Placed(one, 12, height) for one in made]


def _phases() -> Json:
    words = Words(
        "Phases",
        "What each rank was doing whenever it was scraped. In a hang the one that is not "
        "*communicating* is whom the others wait for.",
        "One rank in *data* while the rest communicates: its loader. One in *saving*: its "
        "storage. None of them: `holdfast explain` has the stacks.",
        NODE,
    )
    phase = of_node("holdfast_rank_phase_id")
    scale = Scale("none", words=(PHASE_WORDS,))
    return states(words, scale, [over_time(of_the_latest(phase), "{{rank}}")])
