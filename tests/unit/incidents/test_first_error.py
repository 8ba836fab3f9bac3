from __future__ import annotations

from holdfast_sidecar.incidents.first_error import (
    LogError,
    Sign,
    confidence,
    order,
    sign_of_exit,
    sign_of_line,
    sign_of_words,
)
from holdfast_sidecar.records.reports import Exit

ABORTED = "Fatal Python error: Aborted"
LOST_PEER = "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1"


def ended(rank: int, code: int, at: float, message: str = "", forced: bool = False) -> Sign:
    sign = sign_of_exit("a", Exit(rank, rank, 1, code, at, 0, message, forced=forced))
    assert sign is not None
    return sign


def test_who_died_of_its_own_cause_comes_before_who_lost_a_peer_whoever_was_seen_first() -> None:
    found = order([ended(0, 1, 10.0, LOST_PEER), ended(3, 1, 10.4, "ValueError: bad sample")])
    assert [(one.rank, one.is_own) for one in found] == [(3, True), (0, False)]
    assert found[0].words == "ValueError: bad sample"
    assert confidence(found) == 0.9


def test_a_log_says_why_a_signal_came() -> None:
    abort = "CUDA error: an illegal memory access was encountered"
    found = order(
        [
            ended(0, 1, 10.0, LOST_PEER),
            ended(1, -6, 10.1),
            sign_of_line("a", LogError(1, abort, 9.5, is_grave=True), "stderr.log"),
        ]
    )
    assert (found[0].rank, found[0].words, found[0].at_unix_s) == (1, abort, 9.5)


def test_an_abort_is_told_to_be_as_sure_as_the_incident_is() -> None:
    aborted = [ended(1, -6, 10.1), sign_of_words(1, "a", ABORTED, "fatal signal")]
    found = order([ended(0, 1, 10.0, LOST_PEER), *aborted])
    assert [(one.rank, one.words) for one in found] == [(1, ABORTED), (0, LOST_PEER)]
    assert confidence(found) == 0.5
    line = LogError(1, "CUDA error: an illegal memory access", None, is_grave=True)
    explained = order([*aborted, sign_of_line("a", line, "stderr.log")])
    assert (explained[0].words, confidence(explained)) == (line.text, 0.9)
    other = order([*aborted, ended(2, 1, 10.2, "ValueError: x")])
    assert ([one.rank for one in other], confidence(other)) == ([2, 1], 0.9)


def test_of_a_killed_rank_the_signal_counts_and_its_last_words_tell() -> None:
    words = sign_of_words(1, "a", "Fatal Python error: Segmentation fault", "fatal signal")
    found = order([ended(1, -11, 10.0), words])
    assert (found[0].weight, found[0].at_unix_s) == (3, 10.0)


def test_an_error_that_was_caught_blames_nobody() -> None:
    caught = LogError(0, "ERROR can't reach the tracker", 1.0)
    grave = LogError(2, "CUDA error: misaligned address", 2.0, is_grave=True)
    found = order(
        [
            ended(1, 1, 10.0, "ValueError: x"),
            ended(0, 1, 10.0, LOST_PEER),
            sign_of_line("a", caught, "log"),
            sign_of_line("a", grave, "log"),
        ]
    )
    assert [one.rank for one in found] == [1, 0]
    assert (found[1].words, found[1].at_unix_s) == (LOST_PEER, 10.0)


def test_logs_alone_are_better_than_nothing() -> None:
    line = sign_of_line("a", LogError(2, "CUDA error: x", 2.0, is_grave=True), "log")
    assert [one.rank for one in order([line])] == [2]
    assert order([]) == []
    assert confidence([]) == 0.0


def test_who_was_ended_by_the_launcher_or_ended_well_did_not_fail() -> None:
    assert sign_of_exit("a", Exit(0, 0, 1, -15, 1.0, 0, forced=True)) is None
    assert sign_of_exit("a", Exit(0, 0, 1, 0, 1.0, 0)) is None


def test_who_says_that_ranks_differ_comes_before_who_lost_a_peer_for_it() -> None:
    said = "RuntimeError: [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= 4"
    words = sign_of_words(1, "a", said, "last words")
    found = order([ended(0, 1, 10.0, LOST_PEER), ended(1, 1, 10.1, said), words])
    assert [(one.rank, one.is_own) for one in found] == [(1, True), (0, False)]


def test_rivals_share_the_blame() -> None:
    found = order([ended(0, 1, 10.0, "ValueError: x"), ended(1, 1, 10.0, "ValueError: y")])
    assert [one.rank for one in found] == [0, 1]
    assert confidence(found) == 0.45
