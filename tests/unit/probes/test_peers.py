from __future__ import annotations

from holdfast_sidecar.coordination.reports import NodeReport, RankReport, encode
from holdfast_sidecar.probes.peers import parse_peers


def report(node: str, rank: int, attempt: int = 3, ending: int = 0) -> str:
    mine = RankReport(rank, 0, 100, 8, "backward", 1.5, 0.05, 0.02, ending=ending)
    return encode(NodeReport(node, "x", 1, 0, 0, attempt, True, ranks=[mine]))


def test_ranks_of_other_nodes_in_the_same_attempt_are_peers() -> None:
    reports = {
        "a": report("a", 0),
        "b": report("b", 1),
        "c": report("c", 2, attempt=2),
        "d": report("d", 3, ending=1),
        "e": "{torn",
        "f": "[]",
    }
    peers = parse_peers(reports, "a", 3)
    assert set(peers) == {1, 3}
    assert (peers[1].phase, peers[1].phase_age_s, peers[1].own_s) == ("backward", 1.5, 0.02)
    assert [peer.has_ended for peer in peers.values()] == [False, True]
