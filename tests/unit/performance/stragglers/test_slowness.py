"""Who is slow, as findings."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.records.slow_job import EFFICIENCY, STANDING

from holdfast_sidecar.config.settings import StragglerSettings
from holdfast_sidecar.performance.slowness import FRESH_S, find_slow

AT = STANDING.at_unix_s


@pytest.mark.parametrize(
    ("step_s", "age_s", "is_found"),
    [
        (0.15, 1.0, True),
        (0.15, FRESH_S + 1, False),
        (None, FRESH_S + 1, False),
        (40.0, 1000.0, True),
        (40.0, 1300.0, False),
    ],
)
def test_who_was_slow_before_the_job_stood_still_is_no_trouble_of_that(
    step_s: float | None, age_s: float, is_found: bool
) -> None:
    efficiency = dataclasses.replace(EFFICIENCY, step_s=step_s)
    standing = dataclasses.replace(STANDING, efficiency=efficiency)
    found = list(find_slow(standing, 0, StragglerSettings(), AT + age_s))
    assert bool(found) is is_found


def test_what_is_less_than_the_least_is_no_finding_nor_what_another_attempt_was() -> None:
    assert not list(find_slow(STANDING, 1, StragglerSettings(), AT))
    assert not list(find_slow(STANDING, 0, StragglerSettings(least_slowdown=0.9), AT))
    assert not list(find_slow(None, 0, StragglerSettings(), AT))
