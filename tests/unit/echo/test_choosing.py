"""Whom a node exchanges packets with."""

from __future__ import annotations

from collections import Counter

from holdfast_sidecar.echo.choosing import choose


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
