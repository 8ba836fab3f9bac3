from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.export.live.pretend_views import healthy, troubled

from holdfast_sidecar.cli.tui.panes import frame
from holdfast_sidecar.cli.tui.state import ViewState
from holdfast_sidecar.cli.tui.text import ASCII, UNICODE
from holdfast_sidecar.export.live.view import LiveView

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.mark.parametrize("ranks", [4, 64])
def test_the_picture_is_the_golden_one(ranks: int) -> None:
    picture = "\n".join(frame(troubled(ranks), ViewState(), 80, UNICODE)) + "\n"
    golden = SNAPSHOTS / f"once-{ranks}.txt"
    if os.environ.get("HOLDFAST_WRITE_GOLDEN"):
        golden.write_text(picture)
    assert picture == golden.read_text(), "if this is meant: HOLDFAST_WRITE_GOLDEN=1 pytest …"


def test_all_nodes_of_a_thousand_ranks_are_told() -> None:
    lines = frame(healthy(1024), ViewState(), 80, ASCII)
    assert sum("node-" in line for line in lines if not line.startswith("told")) == 128


def test_what_is_long_is_told_in_part() -> None:
    view = troubled(4)
    many = LiveView(**{**vars(view), "findings": [*view.findings] * 4})
    lines = frame(many, ViewState(), 80, UNICODE)
    assert "findings (8)" in lines
    assert "  and 3 more" in lines


def test_only_rows_with_the_words_are_told() -> None:
    lines = frame(troubled(64), ViewState(filter="9"), 80, UNICODE)
    assert sum("node-" in line and "forward" in line for line in lines) == 1


def test_a_view_that_knows_nothing_is_a_heading_alone() -> None:
    assert frame(LiveView(run="llm"), ViewState(), 80, UNICODE)[0] == "llm  not known"


def test_a_rank_whose_script_says_what_it_does_is_shown_by_that_word() -> None:
    view = healthy(4)
    busy = replace(view.ranks[2], busy="rollout \x1b[31m of 512 prompts")
    lines = frame(
        replace(view, ranks=[*view.ranks[:2], busy, view.ranks[3]]), ViewState(), 80, ASCII
    )
    assert sum("rollout" in line for line in lines) == 1
    assert not any("\x1b" in line or len(line) > 80 for line in lines)
