from __future__ import annotations

from typing import Any

from bench.stragglers.drawn import HELD_OUT, TUNING, healthy, with_fault
from bench.stragglers.goals import aggregate, detection
from bench.stragglers.names import AGGREGATE, DETECTION, HEALTHY
from bench.stragglers.rows import BENCHMARK, tasks


def slow(after: int | None, needed: float = 1.0) -> dict[str, Any]:
    return {"found_after": after, "needed": needed, "slowdown": 0.1, "told": after and 0.11}


def job(
    *ranks: dict[str, Any], false: int = 0, memory: float = 0.0, role: int = 512
) -> dict[str, Any]:
    return {
        "row": DETECTION,
        "mode": "full",
        "memory": memory,
        "role": role,
        "slow": list(ranks),
        "false": [[0, 1]] * false,
    }


def met(samples: list[dict[str, Any]], name: str) -> object:
    return next(figure.met for figure in detection(samples) if figure.name == name)


SOON = "simulated, slow ranks found in <= 10 steps"
RIGHT = "simulated, of ranks told slow those that were"


def test_tuning_and_report_have_no_seed_layout_tail_or_hiccup_rate_in_common() -> None:
    assert not set(TUNING.seeds) & set(HELD_OUT.seeds)
    assert not set(TUNING.layouts) & set(HELD_OUT.layouts)
    assert not set(TUNING.tails) & set(HELD_OUT.tails)
    assert not set(TUNING.hiccups) & set(HELD_OUT.hiccups)
    assert set(TUNING.slowdowns) & set(HELD_OUT.slowdowns) == {0.1}


def test_every_job_has_a_seed_of_its_own() -> None:
    layouts = (*HELD_OUT.layouts, *HELD_OUT.small)
    slow_ones = [with_fault(HELD_OUT, layout, n).seed for layout in layouts for n in range(200)]
    well = [healthy(HELD_OUT, layout, n, 500).seed for layout in layouts for n in range(60)]
    assert len(set(slow_ones)) == len(slow_ones)
    assert not set(slow_ones) & set(well)


def test_a_slow_rank_that_was_found_late_or_never_counts_against_it() -> None:
    assert met([job(*[slow(5)] * 98, slow(11), slow(None))], SOON) is True
    assert met([job(*[slow(5)] * 97, slow(11), slow(11), slow(None))], SOON) is False


def test_what_the_statistics_do_not_allow_within_ten_steps_is_not_counted() -> None:
    assert met([job(slow(5), slow(None, needed=10.1))], SOON) is True
    assert met([job(slow(5), slow(None, needed=8.0), memory=0.3)], SOON) is False
    assert met([job(slow(5), slow(None, needed=8.0), role=4)], SOON) is False
    assert met([job(slow(5), slow(None, needed=8.0))], SOON) is False


def test_a_rank_blamed_wrongly_counts_against_it() -> None:
    assert met([job(*[slow(5)] * 99, false=1)], RIGHT) is True
    assert met([job(*[slow(5)] * 98, false=1)], RIGHT) is False


def test_one_alarm_in_a_healthy_job_is_one_too_many() -> None:
    well = {"row": HEALTHY, "mode": "full", "steps": 100_000, "false": []}
    assert met([well], "ranks blamed in them") is True
    assert met([well, {**well, "false": [[3, 7]]}], "ranks blamed in them") is False


def test_the_dearest_minute_of_the_leader_is_what_counts() -> None:
    minutes = [{"row": AGGREGATE, "core_percent": each, "mib": 80.0} for each in (4.0, 5.1)]
    assert aggregate(minutes[:1])[0].met is True
    assert aggregate(minutes)[0].met is False


def test_every_task_has_a_key_of_its_own_and_a_row_that_can_be_asked_for() -> None:
    for quick in (False, True):
        planned = tasks(quick)
        assert len({task.key for task in planned}) == len(planned)
        assert {task.row for task in planned} <= set(BENCHMARK.rows)
