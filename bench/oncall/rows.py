"""The rows of `bench oncall`, in which order they are measured, and how often."""

from __future__ import annotations

from functools import partial

from bench.benchmark import Benchmark, Task
from bench.oncall import boards, page, pager, rules, scrape
from bench.oncall.goals import figures
from bench.oncall.names import DASHBOARDS, MOST_RANKS, PAGE, PAGER, RANKS, RULES, SCRAPE

DEATHS = 5


def tasks(quick: bool) -> list[Task]:
    """Everything to measure; a quick run asks no dashboard."""
    rounds = scrape.QUICK_ROUNDS if quick else scrape.ROUNDS
    watched_s = rules.QUICK_WATCHED_S if quick else rules.WATCHED_S
    planned = [
        Task(PAGE, f"{PAGE} bytes", partial(page.measure_bytes, MOST_RANKS)),
        Task(PAGE, f"{PAGE} paint", partial(page.measure_paint, MOST_RANKS)),
        *(Task(SCRAPE, f"{SCRAPE} {n}", partial(scrape.measure, n, rounds)) for n in RANKS),
        Task(RULES, RULES, partial(rules.measure, MOST_RANKS, watched_s)),
        *(
            Task(PAGER, f"{PAGER} {n}", partial(pager.measure, n))
            for n in range(1 if quick else DEATHS)
        ),
    ]
    if quick:
        return planned
    return [*planned, Task(DASHBOARDS, DASHBOARDS, partial(boards.measure, MOST_RANKS))]


BENCHMARK = Benchmark(
    name="oncall",
    rows=(SCRAPE, RULES, PAGE, PAGER, DASHBOARDS),
    tasks=tasks,
    figures=figures,
)
