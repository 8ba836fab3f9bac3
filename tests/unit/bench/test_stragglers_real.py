"""Plans of real jobs with planted faults, and what is made of the standings they were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bench.figures import Figure
from bench.stragglers.real_figures import figures
from bench.stragglers.real_links import DROPS_BYTES, QUEUES_BYTES, Limit, SlowCable
from bench.stragglers.real_names import REAL, REAL_HEALTHY
from bench.stragglers.real_outcomes import TAIL, false_alarms, of_episode
from bench.stragglers.real_plan import FAULTY, HEALTHY, WARM_UP, Episode, Plan, plan

from holdfast_sidecar.records.steps import SlowCause

EPISODE = Episode("compute", 2, 0.5, 100, 116)
PLAN = Plan(1, 4, 300, (EPISODE,))


def told(step: int, *slow: tuple[list[int], str]) -> dict[str, Any]:
    named = [{"ranks": ranks, "cause": cause, "slowdown": 0.4} for ranks, cause in slow]
    return {"step": step, "slow": named}


def test_every_cause_comes_in_every_strength_on_one_rank_at_a_time() -> None:
    made = plan(7, 4, (SlowCause.COMPUTE, SlowCause.COLLECTOR), (0.3, 0.5), runs=3)
    kinds = [(one.cause, one.slowdown) for one in made.episodes]
    assert len(kinds) == 12
    assert all(kinds.count(kind) == 3 for kind in set(kinds))
    assert made.episodes[0].since == WARM_UP
    for one, after in zip(made.episodes, made.episodes[1:], strict=False):
        assert one.until - one.since == FAULTY
        assert after.since >= one.until + HEALTHY
        assert after.rank != one.rank
    assert made.steps >= made.episodes[-1].until + HEALTHY


def test_a_plan_is_the_same_for_bench_and_rank() -> None:
    assert Plan.parse(PLAN.spell()) == PLAN
    assert plan(3, 4, (SlowCause.COMPUTE,), (0.3,), 2) == plan(
        3, 4, (SlowCause.COMPUTE,), (0.3,), 2
    )
    assert plan(3, 4, (SlowCause.COMPUTE,), (0.3,), 9) != plan(
        4, 4, (SlowCause.COMPUTE,), (0.3,), 9
    )


def test_a_fault_is_found_after_as_many_of_its_steps_as_were_told_by_then() -> None:
    standings = [told(99), told(105, ([2], "unknown")), told(110, ([2], "compute")), told(118)]
    times = [0.1] * 100 + [0.15] * 16 + [0.1] * 50
    found = of_episode(EPISODE, standings, times)
    assert (found["found_after"], found["first_cause"], found["told_cause"]) == (
        5,
        "unknown",
        "compute",
    )
    assert found["achieved"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "standings",
    [
        [],
        [told(100, ([2], "compute"))],
        [told(117, ([2], "compute"))],
        [told(110, ([1], "compute"))],
        [told(110, ([1, 2], "compute"))],
    ],
    ids=["nothing", "before", "after", "another rank", "more than that rank"],
)
def test_what_is_told_at_another_time_or_of_others_finds_it_not(
    standings: list[dict[str, Any]],
) -> None:
    assert of_episode(EPISODE, standings, [])["found_after"] is None


def test_a_rank_that_was_well_is_a_false_alarm_once_until_it_is_told_no_more() -> None:
    standings = [
        told(50, ([0], "compute")),
        told(51, ([0], "compute")),
        told(52),
        told(110, ([2], "compute"), ([0], "link")),
        told(116 + TAIL, ([2], "compute")),
        told(117 + TAIL, ([2], "compute")),
    ]
    alarms = [(one["step"], one["ranks"]) for one in false_alarms(PLAN, standings)]
    assert alarms == [(50, [0]), (110, [0]), (117 + TAIL, [2])]


def test_one_rank_that_is_blamed_for_a_slow_link_is_blamed_wrongly() -> None:
    link = Episode("link", 1, 0.5, 100, 116)
    standings = [told(108, ([1], "storage"))]
    assert of_episode(link, standings, [])["found_after"] is None
    assert len(false_alarms(Plan(1, 4, 300, (link,)), standings)) == 1


def test_a_cable_is_limited_to_what_makes_a_step_of_this_machine_so_much_longer() -> None:
    cable = SlowCable((Episode("link", 1, 0.5, 10, 20), Episode("link", 0, 0.3, 30, 40)), 1_000_000)
    told = {step: cable.at(step, 0.4 * step) for step in range(45)}
    first, second = Limit(60_000_000, QUEUES_BYTES), Limit(100_000_000, DROPS_BYTES)
    assert [told[step] for step in (9, 10, 19, 20, 29, 30, 39, 40)] == [
        *(None, first, first, None, None, second, second, None),
    ]


def test_steps_of_a_limited_cable_say_nothing_of_the_usual_ones() -> None:
    cable = SlowCable((Episode("link", 1, 0.5, 10, 20),), 1_000_000)
    at_s = 0.0
    for step in range(60):
        cable.at(step, at_s)
        at_s += 9.0 if 10 <= step < 20 else 0.4
    assert cable.usual_s == pytest.approx(0.4)


def test_a_slow_link_explains_all_that_is_told_of_its_members() -> None:
    link = Episode("link", 1, 0.5, 100, 116)
    made = Plan(1, 4, 300, (link,))
    standings = [told(108, ([0, 1, 2, 3], "link")), told(150, ([0, 1, 2, 3], "link"))]
    assert of_episode(link, standings, [])["told_cause"] == "link"
    assert [one["step"] for one in false_alarms(made, standings)] == [150]


def by_name(samples: Sequence[dict[str, Any]]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(samples)}


def episode(found_after: int | None, told_cause: str | None, slowdown: float = 0.3) -> Any:
    return {
        "cause": "compute",
        "slowdown": slowdown,
        "found_after": found_after,
        "told_cause": told_cause,
    }


def test_goals_are_judged_by_what_was_found_in_time_and_rightly() -> None:
    well = [episode(4, "compute")] * 60
    found = by_name([{"row": REAL, "episodes": well, "false_alarms": []}])
    assert all(one.met is not False for one in found.values())
    late = by_name([{"row": REAL, "episodes": [*well, *[episode(12, "compute")] * 2]} | NONE])
    assert late["real, slower by 30 % and more: found within 10 steps"].met is False
    assert late["real, precision"].met is True
    wrong = by_name([{"row": REAL, "episodes": [*well, *[episode(3, "unknown")] * 6]} | NONE])
    assert wrong["real, cause right (unknown is wrong)"].met is False
    assert wrong["real, compute told as unknown"].value == 6
    weak = by_name([{"row": REAL, "episodes": [*well, *[episode(None, None, 0.1)] * 9]} | NONE])
    assert weak["real, slower by 30 % and more: found within 10 steps"].met is True
    assert weak["real, slower by less: found within 10 steps"].value == 0


NONE: dict[str, Any] = {"false_alarms": []}


def test_one_alarm_of_the_healthy_misses_the_goal() -> None:
    well = {"row": REAL_HEALTHY, "steps": 600, "episodes": [], "false_alarms": []}
    name = "real, alarms in healthy steps"
    assert by_name([well])[name].met is True
    assert by_name([well, well | {"false_alarms": [{}]}])[name].met is False
    assert by_name([])[name].met == "not run"


def test_a_full_run_needs_its_ten_thousand_healthy_steps_and_a_quick_one_does_not() -> None:
    well = {"row": REAL_HEALTHY, "steps": 9_999, "episodes": [], "false_alarms": []}
    name = "real, healthy steps"
    assert by_name([well | {"mode": "quick"}])[name].met is None
    assert by_name([well | {"mode": "full"}])[name].met is False
    assert by_name([well | {"mode": "full", "steps": 10_000}])[name].met is True
