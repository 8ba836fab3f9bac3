"""Colours on terminals with fewer of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.extras import package
from tests.unit.cli.tui.test_ramp import LACKING, lightness

from holdfast_sidecar.cli.tui.heatmap import COLOURS
from holdfast_sidecar.cli.tui.text import TextStyle

package("textual")

from rich.color import Color, ColorSystem  # noqa: E402

from holdfast_sidecar.cli.tui.screen import STYLES, strip  # noqa: E402


def test_every_look_has_a_style() -> None:
    assert set(STYLES) == set(TextStyle)


@pytest.mark.parametrize("lacks", LACKING)
def test_with_256_colours_they_still_lighten_with_the_level(lacks: str) -> None:
    few = [Color.parse(one).downgrade(ColorSystem.EIGHT_BIT) for one in COLOURS]
    assert len({one.number for one in few}) == len(COLOURS)
    seen = [lightness(one.get_truecolor().hex, LACKING[lacks]) for one in few]
    assert all(after - before >= 1.5 for before, after in pairwise(seen)), seen


def test_a_strip_is_as_wide_as_it_is_to_be_whatever_the_line() -> None:
    assert strip((), 5, STYLES[TextStyle.PLAIN]).cell_length == 5
