"""The tree that is drawn beside the list of checkpoints."""

from __future__ import annotations

from holdfast_sidecar.cli.checkpoint import TreeNode, draw


def drawn(*nodes: tuple[str, str, float], living: str) -> list[str]:
    rows = draw([TreeNode(*node) for node in nodes], set(living))
    return [f"{row.drawing} {row.identifier}" for row in rows]


def test_one_line_is_a_column() -> None:
    assert drawn(("a", "", 1), ("b", "a", 2), ("c", "b", 3), living="abc") == ["* c", "* b", "* a"]


def test_an_abandoned_branch_leaves_the_line_where_it_was_left() -> None:
    nodes = [("a", "", 1), ("b", "a", 2), ("x", "b", 3), ("y", "x", 4), ("c", "b", 5)]
    assert drawn(*nodes, living="abc") == ["* c", "| o y", "| o x", "*-' b", "* a"]


def test_two_branches_from_one_checkpoint() -> None:
    nodes = [("a", "", 1), ("x", "a", 2), ("y", "a", 3), ("c", "a", 4)]
    assert drawn(*nodes, living="ac") == ["* c", "| o y", "| | o x", "*-'-' a"]


def test_a_column_is_used_again_once_it_is_free() -> None:
    nodes = [("a", "", 1), ("x", "a", 2), ("b", "a", 3), ("y", "b", 4), ("c", "b", 5)]
    assert drawn(*nodes, living="abc")[-1] == "*-' a"
    assert max(len(line) for line in drawn(*nodes, living="abc")) == len("*-' a")


def test_a_branch_whose_origin_was_removed_stands_for_itself() -> None:
    assert drawn(("x", "gone", 2), ("c", "gone", 3), living="c") == ["* c", "o x"]


def test_numbers_that_began_anew_do_not_put_a_parent_before_its_child() -> None:
    assert drawn(("a", "", 9), ("b", "a", 2), living="ab") == ["* b", "* a"]


def test_parents_that_go_round_in_a_circle_do_not_hang_it() -> None:
    assert len(drawn(("a", "b", 1), ("b", "a", 2), living="")) == 2
