from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.live.pretend_views import NOW, healthy, troubled, unheard

from holdfast_sidecar.cli.tui.heading import attention
from holdfast_sidecar.cli.tui.ranks import RankRow, passes, rows
from holdfast_sidecar.cli.tui.state import Grouping, Order, ViewState
from holdfast_sidecar.export.live.view import LiveView


def made(view: LiveView, choice: ViewState | None = None, room: int = 20) -> list[RankRow]:
    return rows(view, choice or ViewState(), attention(view), room)


def labels(view: LiveView, choice: ViewState | None = None, room: int = 20) -> list[str]:
    return [row.label for row in made(view, choice, room)]


def test_while_they_fit_every_rank_has_a_row() -> None:
    assert labels(healthy(4)) == ["0", "1", "2", "3"]
    assert len(labels(healthy(20))) == 20


def test_when_they_don_t_a_row_is_a_node_and_its_worst_rank_stands_for_it() -> None:
    shown = made(troubled(64))
    assert [row.label for row in shown][:3] == ["0-7", "8-15", "16-23"]
    assert len(shown) == 8
    assert shown[0].worst.rank == 3  # dead, which is worse than slow


def test_a_thousand_ranks_are_128_nodes() -> None:
    assert len(made(healthy(1024), room=40)) == 128


def test_an_opened_node_shows_its_ranks_below_it() -> None:
    shown = labels(healthy(64), ViewState(opened=frozenset({"node node-1"})))
    assert shown[:5] == ["0-7", "8-15", " 8", " 9", " 10"]
    assert len(shown) == 16


@pytest.mark.parametrize(
    ("grouping", "count"), [(Grouping.FITTING, 8), (Grouping.NODES, 8), (Grouping.RANKS, 64)]
)
def test_somebody_may_say_what_a_row_is(grouping: Grouping, count: int) -> None:
    assert len(made(healthy(64), ViewState(grouping=grouping))) == count


def test_ranks_with_gaps_are_told_from_neighbours() -> None:
    view = healthy(64)
    ranks = [replace(one, node="a" if one.rank in (0, 5) else "b") for one in view.ranks]
    assert labels(replace(view, ranks=ranks)) == ["0..5", "1..63"]


def test_rows_are_ordered_as_somebody_wants_them() -> None:
    view = troubled(4)
    ranks = list(view.ranks)
    ranks[1] = replace(ranks[1], step_s=9.0)
    ranks[0] = replace(ranks[0], phase_since_unix_s=NOW - 5)
    view = replace(view, ranks=ranks)
    assert labels(view, ViewState(order=Order.NUMBER)) == ["0", "1", "2", "3"]
    assert labels(view, ViewState(order=Order.WORST)) == ["3", "2", "0", "1"]
    assert labels(view, ViewState(order=Order.STEP_TIME))[0] == "1"
    assert (
        labels(view, ViewState(order=Order.PHASE_AGE))[0] == "0"
    )  # rank 3 is in no phase: it died


def test_equal_rows_stay_where_they_are_when_their_times_differ_by_little() -> None:
    orders = []
    for jitters in ((0.9, 0.91, 0.902, 0.899), (0.901, 0.9, 0.903, 0.92)):
        view = healthy(4)
        ranks = [replace(one, own_s=own) for one, own in zip(view.ranks, jitters, strict=True)]
        orders.append(labels(replace(view, ranks=ranks), ViewState(order=Order.WORST)))
    assert orders == [["0", "1", "2", "3"]] * 2


def test_who_takes_clearly_longer_for_its_own_work_is_worse_though_nobody_calls_it_slow() -> None:
    view = healthy(4)
    ranks = [replace(one, own_s=1.3 if one.rank == 2 else 0.9) for one in view.ranks]
    assert labels(replace(view, ranks=ranks), ViewState(order=Order.WORST)) == ["2", "0", "1", "3"]


def test_ranks_of_a_node_that_is_not_heard_come_before_the_well_and_are_found_by_a_word() -> None:
    view = unheard(64)
    assert labels(view, ViewState(order=Order.WORST, grouping=Grouping.NODES))[:2] == [
        "8-15",
        "16-23",
    ]
    assert labels(view, ViewState(filter="lost", grouping=Grouping.RANKS))[0] == "8"
    assert labels(view, ViewState(filter="silent", grouping=Grouping.RANKS))[0] == "16"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("2", ["2"]),
        ("1-2", ["1", "2"]),
        ("gone", ["3"]),
        ("slow", ["2"]),
        ("gpu_clock", ["2"]),
        ("NODE-0 0-1", ["0", "1"]),
        ("backward", ["3"]),
        ("node-9", []),
    ],
)
def test_only_rows_with_the_words_are_shown(words: str, shown: list[str]) -> None:
    assert labels(troubled(4), ViewState(filter=words)) == shown


def test_a_number_is_a_rank_only_where_there_are_ranks() -> None:
    assert passes("8", ("8 GPUs fewer",))
    assert not passes("8", ("8 GPUs fewer",), (1,))
    assert passes("", ())
