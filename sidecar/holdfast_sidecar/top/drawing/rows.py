"""Which rows the ranks make: one each while they fit, else one per node, the opened ones apart.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.export.live.view import LiveView, RankView
from holdfast_sidecar.top.choice import NODE_KEY, Choice, Grouping, Order
from holdfast_sidecar.top.drawing.attention import Attention
from holdfast_sidecar.top.drawing.sieve import passes

RANK_KEY = "rank "


@dataclass(frozen=True)
class Row:
    """A rank, or the ranks of a node, of which the worst stands for all."""

    worst: RankView
    ranks: Sequence[RankView]
    is_node: bool = False
    is_inside: bool = False
    """A rank below its node."""

    @property
    def key(self) -> str:
        """By which it is known again."""
        return f"{NODE_KEY}{self.worst.node}" if self.is_node else f"{RANK_KEY}{self.worst.rank}"

    @property
    def label(self) -> str:
        """`12`, or of a node `8-15`."""
        if not self.is_node:
            return f"{' ' * self.is_inside}{self.worst.rank}"
        numbers = [one.rank for one in self.ranks]
        least, most = min(numbers), max(numbers)
        if most - least + 1 == len(numbers):
            return f"{least}-{most}" if most > least else str(least)
        return f"{least}..{most}"  # with gaps: a node's ranks need not be neighbours


def rows(view: LiveView, choice: Choice, attention: Attention, room: int) -> list[Row]:
    """All rows in their order; `room` says how many can be seen at a time."""
    found = [one for one in view.ranks if _is_looked_for(one, choice.filter)]
    if not is_by_node(choice, len(found), room):
        return _in_order([_of_rank(one) for one in found], view, choice, attention)
    by_node: dict[str, list[RankView]] = {}
    for one in found:
        by_node.setdefault(one.node, []).append(one)
    nodes = [Row(attention.worst(ranks), ranks, is_node=True) for ranks in by_node.values()]
    return list(_with_opened(_in_order(nodes, view, choice, attention), view, choice, attention))


def is_by_node(choice: Choice, ranks: int, room: int) -> bool:
    """Whether a row is a node."""
    if choice.grouping is Grouping.FITTING:
        return ranks > room
    return choice.grouping is Grouping.NODES


def _is_looked_for(rank: RankView, words: str) -> bool:
    life = "" if rank.alive else "gone"
    slow = "" if rank.slowdown is None else "slow"
    return passes(
        words,
        (rank.node, rank.phase, rank.busy, rank.cause, life, slow, rank.silence),
        (rank.rank,),
    )


def _with_opened(
    nodes: Sequence[Row], view: LiveView, choice: Choice, attention: Attention
) -> Iterator[Row]:
    for node in nodes:
        yield node
        if node.key in choice.opened:
            inside = [_of_rank(one, is_inside=True) for one in node.ranks]
            yield from _in_order(inside, view, choice, attention)


def _of_rank(rank: RankView, is_inside: bool = False) -> Row:
    return Row(rank, (rank,), is_inside=is_inside)


def _in_order(
    found: Sequence[Row], view: LiveView, choice: Choice, attention: Attention
) -> list[Row]:
    keys: dict[Order, Callable[[Row], tuple[float, ...]]] = {
        Order.NUMBER: _number,
        Order.WORST: lambda row: tuple(-part for part in attention.badness(row.worst)),
        Order.STEP_TIME: lambda row: (-max(one.step_s or 0.0 for one in row.ranks), *_number(row)),
        Order.PHASE_AGE: lambda row: (min(_since(one, view) for one in row.ranks), *_number(row)),
    }
    return sorted(found, key=keys[choice.order])


def _number(row: Row) -> tuple[float, ...]:
    return (min(one.rank for one in row.ranks),)


def _since(rank: RankView, view: LiveView) -> float:
    """When its phase began; who is done is in it for good, and not to be looked at; of whom nothing
    is heard it is not known how long it has been in it."""
    return rank.phase_since_unix_s if rank.alive and not rank.silence else view.now_unix_s
