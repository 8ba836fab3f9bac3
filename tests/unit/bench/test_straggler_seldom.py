from __future__ import annotations

from typing import Any

from bench.stragglers.drawn import HELD_OUT, TUNING
from bench.stragglers.scenario import Layout
from bench.stragglers.seldom import SELDOM, SELDOM_WELL, blamed, draw, figures, found


def sample(after: int | None, *false: int) -> dict[str, Any]:
    told = {"told": "compute", "cause": "compute", "every": 10, "found_after": after}
    return {"row": SELDOM, "steps": 100, "false": list(false), **told}


def met(samples: list[dict[str, Any]]) -> list[object]:
    return [figure.met for figure in figures(samples)]


def test_one_of_ten_that_is_missed_is_too_many() -> None:
    assert met([sample(41)] * 20)[0] is True
    assert met([*[sample(41)] * 9, sample(None)])[0] is False


def test_a_rank_that_is_blamed_wrongly_misses_the_goal() -> None:
    well = {"row": SELDOM_WELL, "steps": 1000, "false": []}
    assert met([sample(41), well])[-1] is True
    assert met([sample(41), {**well, "false": [2]}])[-1] is False
    assert met([sample(41, 0), well])[-1] is False


def test_a_job_is_drawn_from_its_realm_and_its_rank_is_found() -> None:
    assert draw(TUNING, Layout(3), 0).seed in TUNING.seeds
    assert draw(HELD_OUT, Layout(3), 0).seed in HELD_OUT.seeds
    (one,) = found(Layout(3), 1, TUNING)
    assert one["found_after"] is not None
    assert one["false"] == []
    (well,) = blamed(Layout(3), 1, 60, TUNING)
    assert well["false"] == []
