"""Whom a node exchanges packets with."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast_sidecar.components.network.round_trip import choose, deputies


def test_a_small_job_is_asked_whole() -> None:
    assert choose("a", ["b", "c"]) == ("b", "c")
    assert choose("c", ["a", "b"]) == ("a", "b")
    assert choose("a", []) == ()


def test_of_a_large_job_few_are_asked_and_each_by_as_many() -> None:
    nodes = [f"n{number:04}" for number in range(1000)]
    chosen = [choose(node, nodes) for node in nodes]
    assert {len(set(some)) for some in chosen} == {10}
    assert set(Counter(node for some in chosen for node in some).values()) == {10}
    assert not any(node in some for node, some in zip(nodes, chosen, strict=True))


@pytest.mark.parametrize(
    ("nodes", "through"),
    [
        (["b"], ()),
        (["b", "c"], ("c",)),
        (["b", "c", "d", "e"], ("c", "d")),
        (["c", "d"], ("c", "d")),
    ],
)
def test_a_node_is_asked_through_two_others_where_there_are_two(
    nodes: list[str], through: tuple[str, ...]
) -> None:
    assert deputies("a", "b", nodes) == through


def test_through_whom_goes_around_the_ring_and_never_through_oneself() -> None:
    assert deputies("b", "d", ["a", "c", "d"]) == ("a", "c")
