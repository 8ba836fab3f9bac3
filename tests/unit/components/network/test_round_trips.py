"""Slow ways to other nodes, out of windows of round trips. Times are milliseconds."""

from __future__ import annotations

from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.network.round_trip_checks import RoundTrips, Trips, find_slow_peers
from holdfast_sidecar.records.findings import Finding


def window(lost: dict[str, int] | None = None, **medians_ms: float) -> dict[str, Trips]:
    """Six packets to each; of a node that lost all of them there is no time."""
    missing = lost or {}
    return {
        node: Trips(6, missing.get(node, 0), None if missing.get(node) == 6 else took / 1e3)
        for node, took in medians_ms.items()
    }


USUAL = window(b=0.10, c=0.11, d=0.12, e=0.10)
SLOW = window(b=0.10, c=0.11, d=2.5, e=0.10)


def found(*windows: dict[str, Trips], **more: object) -> list[Finding]:
    ever = frozenset(node for one in windows for node in one)
    trips = RoundTrips(windows, more.pop("ever", ever), **more)  # type: ignore[arg-type]
    return list(find_slow_peers(trips, moment(100.0)))


def test_ways_that_are_alike_are_nothing_to_tell() -> None:
    assert found(USUAL, USUAL, USUAL) == []
    assert list(find_slow_peers(None, moment(1.0))) == []


def test_a_way_that_is_slow_in_all_windows_is_told_and_in_one_it_is_not() -> None:
    assert found(SLOW) == []
    assert found(USUAL, SLOW, SLOW) == []
    (finding,) = found(SLOW, SLOW, SLOW)
    assert (finding.what, finding.confidence) == ("d", 0.5)
    assert "2.50 ms" in finding.evidence[0]
    assert "either side" in finding.evidence[1]


def test_where_several_find_so_it_is_that_nodes_side() -> None:
    (finding,) = found(SLOW, SLOW, SLOW, also_slow_for={"d": ("b", "c")})
    assert finding.confidence == 0.8
    assert finding.evidence[1] == "nodes b, c find the same: the trouble is on its side"


def test_another_rack_a_little_further_away_is_not_slow() -> None:
    further = window(b=0.02, c=0.02, d=0.02, e=0.15)
    assert found(further, further, further) == []


def test_two_others_do_not_tell_what_is_usual() -> None:
    few = window(b=0.1, c=0.1, d=9.0)
    assert found(few, few, few) == []


def test_all_ways_slow_alike_is_this_nodes_own_trouble_which_others_see() -> None:
    slow = window(b=9.0, c=9.1, d=9.2, e=9.0)
    assert found(slow, slow, slow) == []


def test_packets_that_never_come_back_any_more_are_told() -> None:
    lossy = window({"d": 6}, b=0.1, c=0.1, d=0.1, e=0.1)
    (finding,) = found(lossy, lossy, lossy)
    assert finding.evidence[0] == "node d: 6 of 6 packets did not come back"
    assert found(USUAL, lossy, lossy) == []


def test_a_node_that_never_answered_may_be_behind_a_firewall() -> None:
    lossy = window({"d": 6}, b=0.1, c=0.1, d=0.1, e=0.1)
    assert found(lossy, lossy, lossy, ever=frozenset("bce")) == []


def test_a_packet_lost_now_and_then_is_nothing() -> None:
    some = window({"d": 2}, b=0.1, c=0.1, d=0.1, e=0.1)
    assert found(some, some, some) == []
