from __future__ import annotations

import dataclasses
from typing import Any

from holdfast_sidecar.ranks.probe import parse_peers, parse_traces
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.collectives import CollectiveCall, CollectiveState, RankTrace
from holdfast_sidecar.records.reports import NodeReport, RankReport


def report(node: str, rank: int, attempt: int = 3, ending: int = 0, **changes: Any) -> str:
    mine = RankReport(rank, 0, 100, 8, "backward", 1.5, 0.05, 0.02, ending=ending, **changes)
    return encode(NodeReport(node, "x", 1, 0, 0, attempt, True, ranks=[mine]))


def test_ranks_of_other_nodes_in_the_same_attempt_are_peers() -> None:
    reports = {
        "a": report("a", 0),
        "b": report("b", 1),
        "c": report("c", 2, attempt=2),
        "d": report("d", 3, ending=1),
        "e": "{torn",
        "f": "[]",
        "g": report("g", 4, alive=False, exit_code=0),
        "h": report("h", 5, alive=False, exit_code=1),
    }
    peers = parse_peers(reports, "a", 3)
    assert set(peers) == {1, 3, 4, 5}
    assert (peers[1].phase, peers[1].phase_age_s) == ("backward", 1.5)
    assert [peer.has_ended for peer in peers.values()] == [False, True, True, False]


def traced(node: str, rank: int, doubts: bool, attempt: int = 3) -> str:
    standing = CollectiveState(
        "0", "gloo", "default_pg", 7, 6, [CollectiveCall(7, "barrier")], "00ff" * 7
    )
    trace = RankTrace(rank, True, {"0": 4}, [standing], is_overdue=True)
    plain = decode(NodeReport, report(node, rank, attempt))
    assert plain is not None
    return encode(dataclasses.replace(plain, doubts=doubts, traces=[trace]))


def test_what_other_nodes_ranks_told_comes_whole_over_the_wire() -> None:
    reports = {
        "a": traced("a", 0, doubts=True),
        "b": traced("b", 1, doubts=False),
        "c": traced("c", 2, doubts=True, attempt=2),
        "d": report("d", 3),
        "e": '{"doubts":true',
    }
    doubts, traces = parse_traces(reports, "a", 3)
    assert not doubts
    assert set(traces) == {1}
    (standing,) = traces[1].standings
    assert (standing.is_waiting, str(standing.pending[0]), standing.digest(7)) == (
        True,
        "barrier",
        "00ff",
    )
    assert parse_traces(reports, "b", 3)[0]


def test_one_node_s_doubt_is_every_node_s() -> None:
    assert parse_traces({"b": traced("b", 1, doubts=True)}, "a", 3)[0]
    assert not parse_traces({"b": report("b", 1)}, "a", 3)[0]


def test_what_a_silent_node_said_last_excuses_and_proves_nothing() -> None:
    """It is cut off: its ranks have gone on since."""
    told = {"b": report("b", 1, busy="rollout"), "c": report("c", 2, alive=False, exit_code=0)}
    peers = parse_peers(told, "a", 3, stale={"b", "c"})
    assert (peers[1].phase, peers[1].phase_age_s, peers[1].is_busy) == ("", 0.0, True)
    assert peers[2].has_ended
    assert parse_traces({"b": traced("b", 1, doubts=True)}, "a", 3, stale={"b"}) == (False, {})
