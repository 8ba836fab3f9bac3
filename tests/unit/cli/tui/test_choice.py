from __future__ import annotations

from holdfast_sidecar.cli.tui.state import Grouping, Order, Pane, ViewState


def test_tab_goes_round() -> None:
    choice = ViewState()
    seen = []
    for _ in Pane:
        seen.append(choice.pane)
        choice = choice.beside(1)
    assert seen == list(Pane)
    assert choice.pane is Pane.RANKS
    assert choice.beside(-1).pane is list(Pane)[-1]


def test_enter_opens_a_node_and_closes_it_again() -> None:
    opened = ViewState().entered("node a").entered("node b")
    assert opened.opened == {"node a", "node b"}
    assert opened.entered("node a").opened == {"node b"}


def test_enter_on_anything_else_reads_it() -> None:
    assert ViewState().entered("rank 3").read == "rank 3"
    assert ViewState(Pane.INCIDENTS).entered("x").read == "x"
    assert ViewState(Pane.HELP).entered("3").read == ""
    assert ViewState().entered("") == ViewState()
    assert ViewState(read="rank 3").entered("0").read == "rank 3"


def test_escape_goes_back_step_by_step() -> None:
    choice = ViewState(Pane.SLOW, filter="a", opened=frozenset({"node b"}), read="c")
    steps = []
    for _ in range(5):
        choice = choice.left()
        steps.append(choice)
    assert [bool(one.read) for one in steps] == [False] * 5
    assert [bool(one.filter) for one in steps] == [True, False, False, False, False]
    assert [bool(one.opened) for one in steps] == [True, True, False, False, False]
    assert [one.pane for one in steps] == [Pane.SLOW] * 3 + [Pane.RANKS] * 2


def test_another_pane_lets_go_of_what_was_read_and_keeps_the_words() -> None:
    choice = ViewState(filter="a", read="rank 3").at(Pane.FINDINGS)
    assert (choice.read, choice.filter) == ("", "a")


def test_orders_and_groupings_go_round() -> None:
    choice = ViewState()
    for _ in Order:
        choice = choice.with_next_order()
    for _ in Grouping:
        choice = choice.with_next_grouping()
    assert choice == ViewState()
    assert choice.paused_or_not().is_paused
    assert choice.paused_or_not().paused_or_not() == choice
