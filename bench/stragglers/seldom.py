"""Ranks that are slow in every so manieth step only. Simulated jobs of their own,
apart from those with somebody slow in each step; and healthy ones, judged as a whole.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.benchmark import Sample, Task
from bench.figures import Figure, at_least, exactly, middle
from bench.stragglers.drawn import HELD_OUT, Realm, healthy
from bench.stragglers.followed import outline
from bench.stragglers.judged import standings
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.section import Section
from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.records.steps import SlowCause

SELDOM = "seldom"
SELDOM_WELL = "seldom, healthy"

LAYOUTS = (Layout(2), Layout(3), Layout(4), Layout(8), Layout(4, 2, 2), Layout(16, 4))
CAUSES = (SlowCause.COLLECTOR, SlowCause.DATA_LOADING, SlowCause.COMPUTE)
EVERY = (5, 8, 10, 20)
COSTS = (0.15, 0.3, 0.6)
"""Of a usual step's own time, in the mean over all of them."""
TIMES = 12
"""Within so many it is to be found."""
JOBS, QUICK_JOBS = 20, 3
WELL_STEPS, QUICK_WELL_STEPS = 1500, 400
WELL_JOBS, QUICK_WELL_JOBS = 8, 1
RECALL = 0.95


def tasks(quick: bool) -> list[Task]:
    """One task per layout and row."""
    jobs, steps = (QUICK_JOBS, QUICK_WELL_STEPS) if quick else (JOBS, WELL_STEPS)
    well = QUICK_WELL_JOBS if quick else WELL_JOBS
    return [
        *(Task(SELDOM, f"{SELDOM} {one.name}", partial(found, one, jobs)) for one in LAYOUTS),
        *(
            Task(SELDOM_WELL, f"{SELDOM_WELL} {one.name}", partial(blamed, one, well, steps))
            for one in LAYOUTS
        ),
    ]


def found(layout: Layout, jobs: int, realm: Realm = HELD_OUT) -> list[Sample]:
    """Jobs with one rank that is slow now and then."""
    return [_follow(draw(realm, layout, number)) for number in range(jobs)]


def draw(realm: Realm, layout: Layout, number: int) -> Scenario:
    """The so-manieth of them."""
    seed = realm.seeds[70_000 + number * 100 + layout.ranks % 97]
    chance = random.Random(seed)
    every = chance.choice(EVERY)
    fault = Fault(
        chance.choice(CAUSES),
        (chance.randrange(layout.ranks),),
        chance.choice(COSTS),
        chance.randint(46, 60),
        every=every,
    )
    well = healthy(realm, layout, number, 1000)
    return replace(well, seed=seed, lengths=0.0, restarts=(), faults=(fault,))


def _follow(scenario: Scenario) -> Sample:
    (fault,) = scenario.faults
    steps = fault.since + TIMES * fault.every
    wrong, right, cause = set(), None, ""
    for standing in standings(SimulatedJob(scenario), steps):
        for slow in standing.slow:
            if tuple(slow.ranks) == fault.ranks and standing.step >= fault.since:
                right = right or standing.step - fault.since + 1
                cause = slow.cause.value
            else:
                wrong.update(slow.ranks)
    return {
        **_outline(scenario, steps),
        "every": fault.every,
        "costs": fault.slowdown,
        "cause": fault.cause.value,
        "told": cause,
        "found_after": right,
        "false": sorted(wrong),
    }


def blamed(layout: Layout, jobs: int, steps: int, realm: Realm = HELD_OUT) -> list[Sample]:
    """Healthy jobs, in which nobody is to be told for anything."""
    samples = []
    for number in range(jobs):
        scenario = healthy(realm, layout, 400 + number, steps)
        judged = standings(SimulatedJob(scenario), steps)
        told = [slow.ranks for standing in judged for slow in standing.slow]
        wrong = sorted({rank for ranks in told for rank in ranks})
        samples.append({**_outline(scenario, steps), "false": wrong})
    return samples


def _outline(scenario: Scenario, steps: int) -> Sample:
    return {**outline(scenario), "hiccups": scenario.hiccups, "steps": steps}


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Who was found, and who was blamed."""
    slow = [s for s in samples if s["row"] == SELDOM and "found_after" in s]
    well = [s for s in samples if s["row"] == SELDOM_WELL and "false" in s]
    told = [s for s in slow if s["found_after"] is not None]
    times = [s["found_after"] / s["every"] for s in told]
    right = [s for s in told if s["told"] == s["cause"]]
    wrong = float(sum(len(s["false"]) for s in (*slow, *well)))
    return [
        at_least(
            f"slow in every 5th to 20th step: found within {TIMES} times",
            "share",
            len(told) / len(slow) if slow else None,
            RECALL,
        ),
        middle("the same: after so many times", "times", times),
        middle("the same: cause right", "share", [len(right) / len(told)] if told else []),
        middle("healthy steps beside", "steps", [float(sum(s["steps"] for s in well))]),
        exactly("ranks blamed in either", "ranks", wrong if slow or well else None, 0),
    ]


SECTION = Section((SELDOM, SELDOM_WELL), tasks, figures)
