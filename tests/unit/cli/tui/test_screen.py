"""The screen under Textual's own pilot: keys, sizes, silence, and pictures kept as text."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path

import pytest
from tests.extras import package
from tests.unit.export.live.pretend_views import HOSTILE, healthy, hostile, troubled

from holdfast_sidecar.cli.tui.state import Grouping, Latest, Order, Pane, ViewState
from holdfast_sidecar.cli.tui.text import ASCII, UNICODE, Signs
from holdfast_sidecar.export.live.view import IncidentView, LiveView

package("textual")

from textual.pilot import Pilot  # noqa: E402
from textual.widgets import Input  # noqa: E402

from holdfast_sidecar.cli.tui.screen import LOOK_EVERY_S, TopApp  # noqa: E402

SNAPSHOTS = Path(__file__).parent / "snapshots"

_PIECE = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="[\d.]+"[^>]*line-(\d+)\)">(.*?)</text>')
_COLUMN = 12.2
"""Width of a column in the drawing that Textual exports."""


@dataclass
class Told:
    """A watch whose word is changed by hand."""

    latest: Latest = field(default_factory=Latest)


Doing = Callable[[Pilot[None], TopApp, Told], Awaitable[None]]


def on_screen(
    view: LiveView | None, doing: Doing, size: tuple[int, int] = (80, 24), signs: Signs = UNICODE
) -> None:
    """Run the app without a terminal, and do this with it."""

    async def run() -> None:
        told = Told(Latest(view, "a test"))
        app = TopApp(told, signs)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await doing(pilot, app, told)

    asyncio.run(run())


def text_of(app: TopApp) -> list[str]:
    """What stands on the screen, from the drawing that Textual exports of it."""
    lines: dict[int, str] = {}
    for x, line, text in _PIECE.findall(app.export_screenshot()):
        before = lines.get(int(line), "")
        column = round(float(x) / _COLUMN)
        lines[int(line)] = before.ljust(column) + unescape(text).replace("\xa0", " ")
    return [lines.get(number, "").rstrip() for number in range(app.size.height)]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for this; the asserts that follow say what is wrong where it never came."""
    for _ in range(100):
        if holds():
            return
        await pilot.pause(0.1)


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize(
    ("name", "ranks", "size", "keys"),
    [
        ("ranks-4", 4, (80, 24), ()),
        ("ranks-1024", 1024, (80, 24), ()),
        ("ranks-1024-opened", 1024, (80, 24), ("enter", "down", "down")),
        ("ranks-1024-wide", 1024, (200, 50), ()),
        ("incidents", 4, (80, 24), ("i",)),
        ("help", 4, (80, 24), ("question_mark",)),
    ],
)
def test_the_screen_is_the_golden_one(
    name: str, ranks: int, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, *keys)
        picture = "\n".join(text_of(app)) + "\n"
        golden = SNAPSHOTS / f"{name}.txt"
        if os.environ.get("HOLDFAST_WRITE_GOLDEN"):
            golden.write_text(picture)
        assert picture == golden.read_text(), "if this is meant: HOLDFAST_WRITE_GOLDEN=1 pytest …"

    on_screen(troubled(ranks), doing, size)


def test_the_picture_in_the_documentation_is_one_of_them() -> None:
    told = (Path(__file__).parents[4] / "docs" / "top.md").read_text()
    golden = (SNAPSHOTS / "ranks-1024-opened.txt").read_text().splitlines()
    assert "\n".join([*golden[:16], golden[-1]]) in told


def test_every_pane_has_its_key() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for key, pane in {
            "i": Pane.INCIDENTS,
            "f": Pane.FINDINGS,
            "s": Pane.SLOW,
            "a": Pane.ACCOUNT,
            "n": Pane.NODES,
            "question_mark": Pane.HELP,
            "r": Pane.RANKS,
        }.items():
            await press(pilot, key)
            assert app.choice.pane is pane
        seen = []
        for key in ("tab", "shift+tab"):
            await press(pilot, key)
            seen.append(app.choice.pane)
        assert seen == [Pane.INCIDENTS, Pane.RANKS]

    on_screen(troubled(4), doing)


def test_a_story_is_opened_read_and_left() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "i", "enter")
        assert any("next: look at dmesg" in line for line in text_of(app))
        await press(pilot, "escape")
        assert any("rank 1 on node-0 stood still" in line for line in text_of(app))

    on_screen(troubled(4), doing)


def test_a_long_story_is_scrolled() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "i", "enter", "down", "j")
        assert text_of(app)[3].strip() == "incident 1: crash"
        assert [line.strip() for line in text_of(app)[4:6]] == ["line 2", "line 3"]
        await press(pilot, "end")
        assert text_of(app)[22].strip() == "line 59"
        assert "▶" not in "".join(text_of(app))

    story = [f"line {number}" for number in range(60)]
    incident = IncidentView(identifier="1", cause="crash", story=story)
    on_screen(replace(healthy(4), incidents=[incident]), doing)


def test_enter_opens_the_node_under_the_mark() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "down", "j", "enter")
        assert app.choice.opened == {"node node-2"}
        await press(pilot, "down", "enter")
        assert app.choice.read == "rank 16"
        assert any("phase       forward" in line for line in text_of(app))

    on_screen(healthy(1024), doing)


def test_the_mark_stays_with_its_row_when_the_order_changes() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "down", "down")
        marked = next(line for line in text_of(app) if line.startswith("▶"))
        await press(pilot, "o")
        assert app.choice.order is Order.WORST
        assert next(line for line in text_of(app) if line.startswith("▶")) == marked

    on_screen(troubled(4), doing)


def test_the_last_row_can_be_reached() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for keys in (("end",), ("home", *["pagedown"] * 9)):
            await press(pilot, *keys)
            assert any(line.startswith("▶") and "node-127" in line for line in text_of(app))

    on_screen(healthy(1024), doing)


def test_words_are_looked_for_while_they_are_written() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "slash", *"node-12")
        assert app.choice.filter == "node-12"  # and the letters did nothing else
        assert app.choice.pane is Pane.RANKS
        await press(pilot, "enter", "j")
        assert app.query_one(Input).display is False
        shown = [line for line in text_of(app) if "forward" in line]
        assert len(shown) == 9  # 12 and 120 to 127
        await press(pilot, "slash", "escape")
        assert app.choice.filter == ""

    on_screen(healthy(1024), doing)


def test_while_it_stands_still_nothing_new_is_shown() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        await press(pilot, "p")
        told.latest = Latest(replace(healthy(4), step=99_999), "a test")
        await pilot.pause(2 * LOOK_EVERY_S)
        assert "99,999" not in text_of(app)[0]
        assert "PAUSED" in text_of(app)[2]
        await press(pilot, "p")
        await until(pilot, lambda: "99,999" in text_of(app)[0])
        assert "99,999" in text_of(app)[0]

    on_screen(healthy(4), doing)


def test_when_nobody_answers_the_last_view_stays() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        told.latest = told.latest.unanswered("127.0.0.1:1 does not answer", 0.0)
        await until(pilot, lambda: text_of(app)[2].startswith("NO"))
        lines = text_of(app)
        assert lines[2].startswith("NO ANSWER for ")
        assert sum("node-0" in line for line in lines) == 4

    on_screen(healthy(4), doing)


def test_before_anything_is_known_it_is_there_already() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        assert text_of(app)[0] == "nothing is known of the job so far"
        told.latest = Latest(healthy(4), "a test")
        await until(pilot, lambda: text_of(app)[0].startswith("llm"))
        assert text_of(app)[0].startswith("llm  running")

    on_screen(None, doing)


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (80, 24), (200, 60), (5, 3)])
def test_it_fits_whatever_the_size_becomes(size: tuple[int, int]) -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for key in "rifsan":
            await press(pilot, key)
            await pilot.resize_terminal(*size)
            await pilot.pause()
            lines = text_of(app)
            assert len(lines) == size[1]
            assert all(len(line) <= size[0] for line in lines)
            await pilot.resize_terminal(80, 24)

    on_screen(troubled(64), doing)


def test_nothing_is_read_as_markup_or_reaches_the_terminal_as_it_came() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for key in "rifsan":
            await press(pilot, key)
            text = "\n".join(text_of(app))
            assert not set("\x1b\x00\r\u202e\u0301") & set(text)
        await press(pilot, "r")
        assert "␛[31m[bold]a␍␊b␀\\u202eevil" in text_of(app)[1]

    on_screen(replace(hostile(4), headline=HOSTILE), doing, (200, 24))


def test_without_unicode_the_whole_screen_is_ascii() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for key in "rifsan":
            await press(pilot, key)
            assert "\n".join(text_of(app)).isascii()

    on_screen(troubled(64), doing, signs=ASCII)


def test_grouping_goes_from_what_fits_to_ranks_to_nodes() -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        for grouping in (Grouping.RANKS, Grouping.NODES, Grouping.FITTING):
            await press(pilot, "g")
            assert app.choice.grouping is grouping

    on_screen(healthy(64), doing)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_is_left_by_one_key(key: str) -> None:
    async def doing(pilot: Pilot[None], app: TopApp, told: Told) -> None:
        assert app.is_running
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running or app._exit

    on_screen(healthy(4), doing)


def test_a_choice_can_be_given() -> None:
    async def run() -> None:
        app = TopApp(Told(Latest(troubled(4))), UNICODE, ViewState(filter="2"))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert sum("node-0" in line for line in text_of(app)[3:]) == 1

    asyncio.run(run())
