from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.export.live.pretend_views import NOW, heat

from holdfast_sidecar.cli.tui.heatmap import timeline
from holdfast_sidecar.cli.tui.text import UNICODE, plain
from holdfast_sidecar.export.live.view import Heat


def row(told: Heat, room: int, *ranks: int, step_s: float | None = 1.0) -> str:
    return plain(timeline(told, room, step_s).row(ranks, ranks[0], UNICODE))


@pytest.mark.parametrize("room", [0, 1, 7, 16, 40, 119, 120, 200])
def test_the_map_is_as_wide_as_there_is_room_or_as_it_has_columns(room: int) -> None:
    assert len(row(heat(1), room, 0)) <= min(room, 120)
    assert len(row(heat(1), room, 0)) >= min(room, 120) // 2


def test_a_short_slowness_is_not_lost_where_columns_are_put_together() -> None:
    told = heat(1)
    told = replace(told, rows={0: [*[1.0] * 70, 2.5, *[1.0] * 49]})
    assert row(told, 20, 0).count("▇") == 1


def test_of_a_node_its_slowest_rank_is_shown() -> None:
    told = replace(heat(2, 4), rows={0: [1.0, 1.0, 2.5, 1.0], 1: [1.31, 1.0, 1.0, 1.0]})
    assert row(told, 10, 0, 1) == "▄▁▇▁"


def test_when_a_column_comes_the_others_stay_what_they_were() -> None:
    """They are put together by the clock: else the whole picture would flicker once a second."""
    ratios = [1.0 + (number // 4 * 7 % 5) / 4 for number in range(130)]
    pictures = []
    for come in range(10):
        columns = [NOW + number for number in range(come, come + 120)]
        told = Heat(columns, rows={0: list(ratios[come : come + 120])})
        pictures.append(row(told, 30, 0))
    for before, after in pairwise(pictures):
        kept = before[2:-1]  # the first has columns that went, the last one that are to come
        assert kept in after


def test_where_nobody_told_of_a_step_stands_what_the_rank_does() -> None:
    told = replace(heat(1, 4), rows={0: [1.0, None, None, 1.0]}, phases={0: [4, 1, None, 4]})
    assert row(told, 10, 0) == "▁R ▁"


def test_while_the_job_stands_its_ranks_pace_of_before_is_not_shown() -> None:
    told = replace(
        heat(2, 8),
        steps=[1, 2, 2, 2, 2, 2, 2, 2],
        phases={0: [4, 4, 6, 6, 6, 6, 6, 6], 1: [4, 4, 5, 5, 5, 5, 5, 5]},
    )
    assert row(told, 10, 0) == "▁▁WWWWWW"
    assert row(told, 10, 1) == "▁▁BBBBBB"


def test_in_jobs_of_many_ranks_several_share_a_row() -> None:
    told = replace(heat(1, 2), rows={0: [1.0, 1.0], 4: [2.5, 2.5]}, ranks_per_row=4)
    assert row(told, 10, 6) == "▇▇"


def test_a_rank_that_the_map_lacks_has_an_empty_row() -> None:
    assert row(heat(1, 3), 10, 7) == "   "


@pytest.mark.parametrize(
    "told",
    [
        Heat(),
        Heat(columns=[5.0]),
        Heat(columns=[5.0] * 50, rows={0: [1.0] * 3}, phases={0: [99] * 50}),
        Heat(columns=[9.0, 5.0, 1.0] * 9, rows={0: [1.0] * 27}, ranks_per_row=0),
    ],
)
def test_a_map_that_makes_no_sense_breaks_nothing(told: Heat) -> None:
    assert len(row(told, 10, 0)) <= 10


@pytest.mark.parametrize("room", [200, 40, 20])
def test_the_title_says_from_when_to_when(room: int) -> None:
    times = timeline(heat(1), room)
    assert len(times.title().text) == len(times.columns)
    began = times.heat.columns[times.columns[0].start]
    assert times.title().text.split() == [f"-{NOW - began:.0f}s", "now"]


def test_a_narrow_map_s_title_says_now_alone() -> None:
    assert timeline(heat(1), 6).title().text == "now"
    assert timeline(Heat(), 6).title().text == ""
