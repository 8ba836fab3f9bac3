"""The live view: plain when piped, drawn in place on a terminal."""

from __future__ import annotations

import io

from holdfast_sidecar.cli.demo import newest_step
from holdfast_sidecar.cli.demonstration.screen import (
    LineScreen,
    LiveScreen,
    RunProgress,
    picture,
    screen,
)

HALF = RunProgress("with faults", 140, 280, ("node a", "node b"))


def test_the_bar_is_as_full_as_the_run() -> None:
    _, head, *details = picture(HALF, width=100, seconds=12.0)
    assert head.count("█") == head.count("░")
    assert head.endswith("140/280")
    assert [line.strip() for line in details] == ["node a", "node b"]


def test_no_line_is_wider_than_the_terminal() -> None:
    wide = RunProgress("with faults", 1, 280, ("x" * 300,))
    assert max(len(line) for line in picture(wide, width=60, seconds=1.0)) < 60


def test_a_pipe_gets_lines_without_control_sequences() -> None:
    stream = io.StringIO()
    shown = screen(stream, started=0.0)
    assert isinstance(shown, LineScreen)
    shown.tell("noticed")
    shown.show(HALF)
    assert "noticed" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_news_stay_above_a_picture_that_is_drawn_anew() -> None:
    stream = io.StringIO()
    shown = LiveScreen(stream, started=0.0)
    shown.show(HALF)
    shown.tell("noticed")
    erased, after = stream.getvalue().split("\x1b[4F\x1b[J")
    assert "140/280" in erased
    assert after.index("noticed") < after.index("140/280")


def test_the_step_of_the_undisturbed_run_is_read_from_what_it_prints() -> None:
    assert newest_step("") == 0
    assert newest_step("step 20 loss 3.1\nstep 40 loss 2.9\nweights ab\n") == 40
