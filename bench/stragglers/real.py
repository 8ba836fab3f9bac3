"""Rows of real jobs: faults that are found, links that are, and long health without an alarm."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.benchmark import NotRun, Sample, Task
from bench.stragglers import real_job, real_networks, real_plan
from bench.stragglers.real_figures import figures
from bench.stragglers.real_job import Node, Told
from bench.stragglers.real_links import Limit, SlowCable, drops
from bench.stragglers.real_names import REAL, REAL_HEALTHY, REAL_LINK
from bench.stragglers.real_outcomes import LINKS, false_alarms, of_episode
from bench.stragglers.real_plan import OWN_S, Episode, Plan
from bench.stragglers.section import Section
from holdfast_sidecar.records.steps import SlowCause

CAUSES = (
    SlowCause.COMPUTE,
    SlowCause.DATA_LOADING,
    SlowCause.COLLECTOR,
    SlowCause.CPU_QUOTA,
    SlowCause.UNEVEN_WORK,
)
SLOWDOWNS = (0.3, 0.5)
RANKS = 4
LAUNCHES = 10
"""Each with one run of every cause and slowdown."""
QUICK_RUNS = 1
WEAK_LAUNCHES = 5

LINK_GRADIENT_BYTES = 1 << 20
LINK_RUNS = 10

HEALTHY_STEPS = 10_000
QUICK_HEALTHY_STEPS = 600
HEALTHY_OWN_S = 0.05


def tasks(quick: bool) -> list[Task]:
    """The causes first, then links, then health."""
    healthy = QUICK_HEALTHY_STEPS if quick else HEALTHY_STEPS
    links = QUICK_RUNS if quick else LINK_RUNS
    return [
        *(
            Task(REAL, f"{REAL}/{seed}", partial(faults, seed, SLOWDOWNS))
            for seed in range(QUICK_RUNS if quick else LAUNCHES)
        ),
        *(
            Task(REAL, f"{REAL}/weak/{seed}", partial(faults, 100 + seed, (0.1,)))
            for seed in range(0 if quick else WEAK_LAUNCHES)
        ),
        Task(REAL_LINK, REAL_LINK, partial(link, 200, links)),
        Task(REAL_HEALTHY, REAL_HEALTHY, partial(health, 300, healthy)),
    ]


def faults(seed: int, slowdowns: tuple[float, ...]) -> list[Sample]:
    """One job of one node that suffers every cause once in each strength."""
    plan = real_plan.plan(seed, RANKS, CAUSES, slowdowns, runs=1)
    return [sample(plan, real_job.run(plan, [Node("a", RANKS)]))]


def link(seed: int, runs: int) -> list[Sample]:
    """Two nodes in two networks; the cable between them gets slower for a while."""
    plan = real_plan.plan(seed, RANKS, (SlowCause.LINK,), SLOWDOWNS, runs)
    plan = replace(plan, gradient_bytes=LINK_GRADIENT_BYTES)
    slow = SlowCable(plan.episodes, plan.gradient_bytes)
    with real_networks.cable() as cable:
        held: list[Limit | None] = [None]

        def limit(step: int) -> None:
            """One limit for an episode, as the pace was before it."""
            now = slow.at(step, time.monotonic())
            if now is not None and held[0] is None:
                cable.limit(now.bits_per_s, now.queue_bytes)
            elif now is None and held[0] is not None:
                cable.free()
            held[0] = now

        environment = {"GLOO_SOCKET_IFNAME": real_networks.INTERFACE}
        nodes = [
            Node(side, RANKS // 2, cable.inside(side), environment, [f"--local-addr={address}"])
            for side, address in real_networks.ADDRESSES.items()
        ]
        told = real_job.run(plan, nodes, on_step=limit)
    made = sample(plan, told)
    made["episodes"] = [{**e, "drops": drops(n)} for n, e in enumerate(made["episodes"])]
    return [made]


def health(seed: int, steps: int) -> list[Sample]:
    """Jitter, lengths that vary, evaluation and saves; nobody is slow."""
    plan = Plan(
        seed,
        RANKS,
        steps,
        lengths=0.15,
        jitter=0.03,
        evaluates_every=97,
        saves_every=60,
        own_s=HEALTHY_OWN_S,
    )
    told = real_job.run(plan, [Node("a", RANKS)])
    if not told.saves:
        raise NotRun("no checkpoint came about, which is part of a healthy life")
    return [sample(plan, told)]


def sample(plan: Plan, told: Told) -> Sample:
    """What came of a job."""
    last = told.standings[-1]["step"] if told.standings else 0
    return {
        "seed": plan.seed,
        "own_s": OWN_S,
        "steps": last,
        "standings": len(told.standings),
        "saves": told.saves,
        "at_unix_s": time.time(),
        "episodes": [of_episode(one, told.standings, _times(one, told)) for one in plan.episodes],
        "false_alarms": false_alarms(plan, told.standings),
        # At the end ranks leave one by one, and who is left can't be judged.
        "unjudged": told.standings[len(told.standings) // 2]["unjudged"] if told.standings else [],
    }


def _times(episode: Episode, told: Told) -> Sequence[float]:
    """What is longer while the fault lasts."""
    is_of_all = episode.cause in LINKS
    return told.step_s if is_of_all else told.own_s.get(episode.rank, ())


SECTION = Section(rows=(REAL, REAL_LINK, REAL_HEALTHY), tasks=tasks, figures=figures)
