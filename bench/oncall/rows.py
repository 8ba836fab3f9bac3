"""The rows of `bench oncall`, in which order they are measured, and how often."""

from __future__ import annotations

from functools import partial

from bench.benchmark import Benchmark, Task
from bench.oncall import page, pager, prometheus_row, scrape
from bench.oncall.goals import figures
from bench.oncall.names import BOARDS, MOST_RANKS, PAGE, PAGER, PROMETHEUS, RANKS, SCRAPE

DEATHS = 3


def tasks(quick: bool) -> list[Task]:
    """Everything to measure; a quick run asks no dashboard and ends one node."""
    rounds = scrape.QUICK_ROUNDS if quick else scrape.ROUNDS
    watched_s = prometheus_row.QUICK_WATCHED_S if quick else prometheus_row.WATCHED_S
    boards = () if quick else BOARDS
    return [
        Task(PAGE, f"{PAGE} bytes", partial(page.measure_bytes, MOST_RANKS)),
        Task(PAGE, f"{PAGE} paint", partial(page.measure_paint, MOST_RANKS)),
        *(Task(SCRAPE, f"{SCRAPE} {n}", partial(scrape.measure, n, rounds)) for n in RANKS),
        Task(
            PROMETHEUS, PROMETHEUS, partial(prometheus_row.measure, MOST_RANKS, watched_s, boards)
        ),
        *(
            Task(PAGER, f"{PAGER} {n}", partial(pager.measure, n))
            for n in range(1 if quick else DEATHS)
        ),
    ]


BENCHMARK = Benchmark(
    name="oncall",
    rows=(SCRAPE, PROMETHEUS, PAGE, PAGER),
    tasks=tasks,
    figures=figures,
)
