"""No line is wider than the screen, and no text steers it, whatever a view holds."""

from __future__ import annotations

import unicodedata

import pytest
from tests.unit.cli.tui.canvases import canvas
from tests.unit.export.live.pretend_views import HOSTILE, healthy, hostile, troubled

from holdfast_sidecar.cli.tui.heading import heading
from holdfast_sidecar.cli.tui.panes import body, frame, keys_line
from holdfast_sidecar.cli.tui.state import Latest, Pane, ViewState
from holdfast_sidecar.cli.tui.text import ASCII, UNICODE, Line, Signs, columns, fitted, plain
from holdfast_sidecar.cli.tui.text import width as width_of
from holdfast_sidecar.export.live.view import LiveView

JOBS = {
    "nothing": LiveView(),
    "healthy": healthy(4),
    "of 64": troubled(64, has_gpus=True),
    "of 1024": troubled(1024),
    "hostile": hostile(64),
}


def picture(view: LiveView, pane: Pane, width: int, signs: Signs) -> list[Line]:
    """As the screen shows it: cut to the width, but for what is to fit by itself."""
    choice = ViewState(pane)
    made = body(canvas(view, choice, width, 20, signs))
    lines = [made.title, *made.rows(0, 20)]
    return [
        *heading(Latest(view), choice, 1.0, width, signs),
        keys_line(view, choice, width, signs),
        *(fitted(line, width, signs) for line in lines),
    ]


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [1, 20, 80, 200])
@pytest.mark.parametrize("job", JOBS)
def test_no_line_is_wider_than_the_screen(job: str, width: int, signs: Signs) -> None:
    for pane in Pane:
        for line in picture(JOBS[job], pane, width, signs):
            assert columns(line) <= width, plain(line)


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_no_text_of_others_reaches_the_terminal_as_it_came(signs: Signs) -> None:
    lines = [plain(line) for pane in Pane for line in picture(JOBS["hostile"], pane, 200, signs)]
    lines += frame(JOBS["hostile"], ViewState(), 200, signs)
    for character in "".join(lines):
        assert unicodedata.category(character) not in ("Cc", "Cf", "Mn", "Zl", "Zp"), character
        assert not signs.is_ascii or character.isascii(), character


def test_this_hostility_is_one() -> None:
    assert {unicodedata.category(one) for one in HOSTILE} >= {"Cc", "Cf", "Mn"}


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("ranks", [4, 64, 1024])
def test_the_table_needs_no_cutting(ranks: int, width: int) -> None:
    """What is cut would be the newest of the course."""
    made = body(canvas(troubled(ranks, has_gpus=True), ViewState(), width - 2))
    for line in (made.title, *made.rows(0, 50)):
        assert width_of(plain(line)) <= width - 2


@pytest.mark.parametrize(("ranks", "width", "least"), [(4, 80, 24), (1024, 80, 24), (64, 200, 90)])
def test_the_course_keeps_its_room(ranks: int, width: int, least: int) -> None:
    made = body(canvas(healthy(ranks), ViewState(), width - 2))
    assert plain(made.draw(0)).count("▁") >= least
