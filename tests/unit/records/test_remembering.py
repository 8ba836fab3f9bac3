"""What is remembered of records that were read, counted in walks and hits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast_sidecar.records import codec
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.codec import DecodeCache, decode, encode
from holdfast_sidecar.records.reports import NodeReport


def reports(count: int, beat: int, filling: str = "") -> list[str]:
    """One of each of so many nodes, at this heartbeat."""
    nodes = range(count)
    return [encode(NodeReport(f"n{n}", f"i{n}", beat, 1, 1, 1, True, host=filling)) for n in nodes]


def hits(texts: Sequence[str], known: Sequence[NodeReport | None]) -> int:
    """How many of them are not read anew."""
    return sum(decode(NodeReport, text) is one for text, one in zip(texts, known, strict=True))


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> DecodeCache:
    """A memory that nothing else is in."""
    own = DecodeCache()
    monkeypatch.setattr(codec, "_REMEMBERED", own)
    return own


def test_a_thousand_reports_are_read_once_however_often_they_are_walked() -> None:
    for beat in range(3):
        texts = reports(1000, beat)
        known = [decode(NodeReport, text) for text in texts]
        assert [one.beat for one in known if one is not None] == [beat] * 1000
        assert [hits(texts, known) for _ in range(20)] == [1000] * 20


def test_of_each_node_no_report_but_the_newest_is_held(remembered: DecodeCache) -> None:
    for beat in range(10, 60):
        texts = reports(50, beat)
        for text in texts:
            decode(NodeReport, text)
        assert remembered.characters == sum(map(len, texts))


def test_of_reports_that_are_too_large_for_the_memory_a_part_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = reports(1000, 1, "x" * 1000)
    own = DecodeCache(most_characters=sum(map(len, texts[:400])))
    monkeypatch.setattr(codec, "_REMEMBERED", own)
    walks = [[decode(NodeReport, text) for text in texts] for _ in range(40)]
    same = [sum(a is b for a, b in zip(one, walks[0], strict=True)) for one in walks[1:]]
    assert min(same) >= 390
    assert own.characters <= sum(map(len, texts[:400]))


def test_nodes_that_left_are_forgotten_while_others_are_read_on(remembered: DecodeCache) -> None:
    for text in reports(200, 1, "x" * 1000):
        decode(NodeReport, text)
    few = reports(20, 2)
    for _ in range(400):
        for text in few:
            decode(NodeReport, text)
    assert remembered.characters == sum(map(len, few))


def test_texts_that_come_once_are_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    own = DecodeCache(most_records=100)
    monkeypatch.setattr(codec, "_REMEMBERED", own)
    texts = [f'{{"beat":{n}}}' for n in range(5000)]
    for text in texts:
        decode(NodeReport, text)
    assert own.characters <= 100 * len(texts[-1])


def test_records_that_are_no_reports_are_remembered_by_what_they_say(
    remembered: DecodeCache,
) -> None:
    """Each ledger entry may name the same writer."""
    texts = [f'{{"incarnation":"i","step":{step}}}' for step in range(3)]
    for text in texts:
        decode(LedgerEntry, text)
    assert remembered.characters == sum(map(len, texts))
