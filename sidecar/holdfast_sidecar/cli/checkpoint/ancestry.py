"""Which checkpoint goes back to which, drawn beside their rows: `*` the living line, `o` others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A checkpoint in the tree. `at`: later is larger."""

    identifier: str
    parent: str
    at: float


@dataclass(frozen=True)
class Row:
    """One line: a checkpoint, and what is drawn before it."""

    identifier: str
    drawing: str


@dataclass(frozen=True)
class _Branch:
    """A chain of checkpoints in one column, from row `first` to the row where it meets `fork`."""

    nodes: tuple[Node, ...]
    first: int
    last: int
    fork: str
    """The checkpoint that it grew from, where that is still there; else empty."""


def draw(nodes: Sequence[Node], living: Collection[str]) -> list[Row]:
    """Rows, newest first, each after all that go back to it. `living`: the line to resume from."""
    ordered = list(_children_first(nodes))
    branches = _branches(ordered, living)
    columns = _columns(branches)
    column_of = {
        node.identifier: column
        for branch, column in zip(branches, columns, strict=True)
        for node in branch.nodes
    }
    width = 2 * max(columns, default=0) + 1
    grid = [[" "] * width for _ in ordered]
    for branch, column in zip(branches, columns, strict=True):
        for row in range(branch.first, branch.last):
            grid[row][2 * column] = "|"
        if branch.fork:
            cells = grid[branch.last]
            for at in range(2 * column_of[branch.fork] + 1, 2 * column):
                cells[at] = "-" if cells[at] == " " else cells[at]
            cells[2 * column] = "'"
    for row, node in enumerate(ordered):
        mark = "*" if node.identifier in living else "o"
        grid[row][2 * column_of[node.identifier]] = mark
    return [
        Row(node.identifier, "".join(cells).rstrip())
        for node, cells in zip(ordered, grid, strict=True)
    ]


def _children_first(nodes: Sequence[Node]) -> Iterator[Node]:
    """Newest first, but never a checkpoint before one that goes back to it."""
    left = sorted(nodes, key=lambda node: node.at, reverse=True)
    while left:
        parents = {node.parent for node in left}
        # Parents that go round in a circle can't come from us, and must not hang the command.
        chosen = next((node for node in left if node.identifier not in parents), left[0])
        left.remove(chosen)
        yield chosen


def _branches(ordered: Sequence[Node], living: Collection[str]) -> list[_Branch]:
    """The living line first, then each other chain by its newest row."""
    rows = {node.identifier: row for row, node in enumerate(ordered)}
    by_identifier = {node.identifier: node for node in ordered}
    taken: set[str] = set()
    branches = []
    for start in sorted(ordered, key=lambda n: (n.identifier not in living, rows[n.identifier])):
        chain: list[Node] = []
        node: Node | None = start
        while node is not None and node.identifier not in taken:
            chain.append(node)
            taken.add(node.identifier)
            node = by_identifier.get(node.parent)
        if chain:
            fork = "" if node is None else node.identifier
            last = rows[fork] if fork else rows[chain[-1].identifier]
            branches.append(_Branch(tuple(chain), rows[start.identifier], last, fork))
    return branches


def _columns(branches: Sequence[_Branch]) -> list[int]:
    """The leftmost column for each branch that no other one needs in its rows."""
    columns: list[int] = []
    for number, branch in enumerate(branches):
        used = {
            column
            for other, column in zip(branches[:number], columns, strict=True)
            if other.first <= branch.last and branch.first <= other.last
        }
        columns.append(next(c for c in range(number + 1) if c not in used))
    return columns
