"""A sidecar's collector leaves alone what comes and goes in a second."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from holdfast_sidecar.records.steps import FIELDS, StepLine
from holdfast_sidecar.wiring import collect_seldom

RANKS = 4096


@pytest.fixture
def looks() -> Iterator[list[str]]:
    """Of the collector, so far."""
    found: list[str] = []
    before = gc.get_threshold()

    def note(phase: str, _: object) -> None:
        found.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def second(step: int) -> list[StepLine]:
    return [StepLine._make([step] * FIELDS) for _ in range(RANKS)]


def test_what_thousands_of_ranks_tell_in_a_second_is_not_looked_through(looks: list[str]) -> None:
    collect_seldom()
    told = second(0)
    for step in range(1, 20):
        told = second(step)
    assert len(told) == RANKS
    assert looks == []


def test_what_stays_is_looked_through_in_the_end(looks: list[str]) -> None:
    collect_seldom()
    kept = [second(step) for step in range(8)]
    assert len(kept) == 8
    assert looks != []
