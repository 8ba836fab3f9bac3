"""The ramp is read by its signs alone, by its colours alone, and without seeing some colours."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast_sidecar.cli.tui.heatmap import COLOURS, LETTERS, STEPS, cell, legend, level
from holdfast_sidecar.cli.tui.text import ASCII, HEAT, UNICODE, Span, TextStyle, plain
from holdfast_sidecar.export.live.build import PHASE_NAMES

Matrix = tuple[tuple[float, float, float], ...]

LACKING: dict[str, Matrix] = {
    # Machado, Oliveira and Fernandes 2009, severity 1.0, for linear RGB.
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}

SCREEN = "#121212"


def linear(colour: str) -> list[float]:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]


def lightness(colour: str, seen_through: Matrix) -> float:
    """CIE L* of what somebody sees."""
    seen = [sum(a * b for a, b in zip(row, linear(colour), strict=True)) for row in seen_through]
    luminance = 0.2126 * seen[0] + 0.7152 * seen[1] + 0.0722 * seen[2]
    return float(116 * max(luminance, 0.0) ** (1 / 3) - 16)


@pytest.mark.parametrize("lacks", LACKING)
def test_colours_lighten_with_the_level_whatever_the_eye_lacks(lacks: str) -> None:
    seen = [lightness(colour, LACKING[lacks]) for colour in (SCREEN, *COLOURS)]
    assert all(after - before >= 5 for before, after in pairwise(seen)), seen


def test_this_test_tells_a_rainbow_from_a_ramp() -> None:
    rainbow = ("#0000ff", "#00ffff", "#00ff00", "#ffff00", "#ff0000")
    seen = [lightness(colour, LACKING["none"]) for colour in rainbow]
    assert seen != sorted(seen)


def test_there_is_a_sign_and_a_colour_for_each_level() -> None:
    assert len(UNICODE.heat) == len(ASCII.heat) == len(COLOURS) == len(HEAT) == len(STEPS) + 1
    assert [plain(line) for line in legend(ASCII)][:2] == [". under 1.05x", ": 1.05x"]


@pytest.mark.parametrize(
    ("ratio", "sign"), [(0.2, "▁"), (1.04, "▁"), (1.05, "▂"), (1.31, "▄"), (2.0, "▇"), (99.0, "█")]
)
def test_the_slower_the_higher(ratio: float, sign: str) -> None:
    assert cell(ratio, "forward", UNICODE) == Span(sign, HEAT[level(ratio)])


def test_where_no_step_ended_stands_what_the_rank_did() -> None:
    assert cell(None, "communicating", UNICODE) == Span("W", TextStyle.DIM)
    assert cell(None, "of a newer sidecar", UNICODE).text == "?"
    assert cell(None, "", UNICODE).text == " "


def test_every_phase_has_a_letter_of_its_own_that_is_no_sign_of_the_ramp() -> None:
    assert set(LETTERS) == set(PHASE_NAMES)
    assert len(set(LETTERS.values())) == len(LETTERS)
    assert not set(LETTERS.values()) & set(ASCII.heat)
