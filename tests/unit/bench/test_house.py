"""`bench house`: what it counts, and how starts are compared."""

from __future__ import annotations

from typing import Any

import pytest
from bench import house


def met(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {figure.name: figure.met for figure in house.figures(samples)}


def starts(before_s: float, now_s: float) -> list[dict[str, Any]]:
    return [{"who": house.BEFORE, "cpu_s": before_s}, {"who": house.NOW, "cpu_s": now_s}]


@pytest.mark.parametrize(("now_s", "is_met"), [(0.75, True), (0.76, False)])
def test_a_start_has_to_take_a_quarter_less(now_s: float, is_met: bool) -> None:
    assert met(starts(1.0, now_s))["start of a sidecar takes less CPU than before"] is is_met


def test_what_was_not_measured_is_not_run() -> None:
    assert set(met([]).values()) == {"not run"}


def test_this_repository_is_counted() -> None:
    (counted,) = house.count()
    assert 300 < counted["modules"] <= 330
    assert counted["rooms"] == 14
    assert 0 < counted["ignored imports"] <= 12
    assert counted["lines"] > 100_000
