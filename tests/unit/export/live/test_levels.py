from __future__ import annotations

import json

import pytest

from holdfast_sidecar.export.live.view import (
    ALPHABET,
    LEVELS,
    NOTHING,
    RATIOS,
    level_of,
    levels_of,
    parse,
    spell,
)


@pytest.mark.parametrize("ratio", [0.75, 0.9, 1.0, 1.05, 1.31, 2.0, 3.9])
def test_a_level_tells_a_ratio_to_one_percent(ratio: float) -> None:
    told = RATIOS[level_of(ratio)]
    assert told == pytest.approx(ratio, rel=0.011)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.0, 1), (0.1, 1), (4.1, LEVELS), (1e9, LEVELS), (float("inf"), LEVELS)]
)
def test_what_is_beyond_an_end_stands_at_that_end(ratio: float, level: int) -> None:
    assert level_of(ratio) == level


def test_what_is_no_number_is_the_lowest_level() -> None:
    assert level_of(float("nan")) == 1


def test_ratios_of_levels_are_those_levels() -> None:
    assert levels_of(RATIOS) == list(range(LEVELS + 1))
    assert levels_of([1.234, None]) == [level_of(1.234), NOTHING]


def test_a_level_is_a_character_that_json_leaves_as_it_is() -> None:
    assert len(ALPHABET) == LEVELS + 1 == len(set(ALPHABET))
    assert json.dumps(ALPHABET) == f'"{ALPHABET}"'


def test_a_row_comes_back_as_it_was() -> None:
    row = [*range(LEVELS + 1)]
    assert parse(spell(row)) == row


def test_a_sign_of_somebody_else_tells_nothing() -> None:
    assert parse('"\\é ') == [NOTHING] * 4
