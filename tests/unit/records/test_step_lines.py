"""Lines of steps from their texts, one by one and many at once."""

from __future__ import annotations

import pytest

from holdfast_sidecar.records.steps import FIELDS, StepLine, parse, parse_all, spell

LINE = StepLine._make(range(FIELDS))
OTHER = StepLine._make([-1, *range(1, FIELDS)])


def spelled(first: str) -> str:
    return " ".join([first, *map(str, LINE[1:])])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(spell(LINE), id="a line"),
        pytest.param(spell(LINE) + " 7 8", id="of a newer writer"),
        pytest.param(spell(LINE).rpartition(" ")[0], id="torn"),
        pytest.param("", id="nothing"),
        pytest.param(spell(LINE) + " ", id="a blank more"),
        pytest.param(spell(LINE).replace(" ", "  "), id="blanks in pairs"),
        pytest.param(spell(LINE) + "],[" + spell(LINE), id="brackets"),
        *(
            pytest.param(spelled(number), id=number)
            for number in ("x", "1.5", "1e3", "true", "null", "1,2", "[1]", '"1"', "-0", "007")
        ),
        *(
            pytest.param(spelled(number), id=ascii(number))
            for number in ("+1", "1_0", "٣", "\ud800")
        ),
    ],
)
def test_many_texts_say_what_each_of_them_says(text: str) -> None:
    alone = parse(text)
    read = [LINE, *([alone] if alone else []), OTHER]
    assert parse_all([spell(LINE), text, spell(OTHER)]) == read
    assert all(isinstance(line, StepLine) for line in parse_all([text]))


def test_of_no_texts_there_are_no_lines() -> None:
    assert parse_all([]) == []
