"""A node that a scheduler wants back."""

from __future__ import annotations

import pytest

from holdfast.contract.page import Flag, Identity, Word
from holdfast_sidecar.ranks.checks import asked_of, find_preemption, told_to_go
from holdfast_sidecar.ranks.observation import RankHistory, RankLook, Ranks
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Kind, Moment
from holdfast_sidecar.records.reports import AgentReport


def rank(number: int, holds: bool = True, told: bool = True, gone: bool = False) -> RankHistory:
    words = [0] * 64
    words[Word.FLAGS] = int(Flag.HOLDS_TERMINATION) if holds else 0
    words[Word.TERMINATION_NS] = 7 if told else 0
    identity = Identity(1, 1, 0, 1, number, number, 2, 1, "a", "j")
    return RankHistory(RankLook(identity, 1.0, tuple(words), gone))


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((), ""),
        ((rank(0), rank(1)), "SIGTERM"),
        ((rank(0), rank(1, told=False)), ""),
        ((rank(0), rank(1, holds=False)), ""),
        ((rank(0), rank(1, told=False, gone=True)), "SIGTERM"),
        ((rank(0, gone=True),), ""),
    ],
)
def test_a_node_is_asked_for_when_all_of_its_ranks_were_told(
    ranks: tuple[RankHistory, ...], told: str
) -> None:
    assert told_to_go(Ranks(0, dict(enumerate(ranks)))) == told


def test_a_launcher_says_for_itself_that_it_was_asked() -> None:
    report = AgentReport("a", "i", "running", 0, 1, 2, "x", 1, 1, preempted_by="SIGUSR1")
    assert asked_of({"a": encode(report)}, "a") == "SIGUSR1"
    assert asked_of({"a": encode(report)}, "b") == ""


def test_it_is_a_finding_that_ends_nobody() -> None:
    (found,) = find_preemption("SIGTERM", Moment(1.0, 2.0, "a"))
    assert (found.kind, found.node, found.acts) == (Kind.PREEMPTED, "a", False)
    assert list(find_preemption("", Moment(1.0, 2.0, "a"))) == []
