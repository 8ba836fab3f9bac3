from __future__ import annotations

from holdfast_sidecar.performance.stragglers.exchanges import SlowExchange
from holdfast_sidecar.performance.stragglers.groups import Circle
from holdfast_sidecar.performance.stragglers.slow_ranks import suspect
from holdfast_sidecar.records.findings import Finding, Kind


def slow(digest: str, *nodes: str) -> SlowExchange:
    return SlowExchange(digest, digest, 1.0, 41, (0, 1), frozenset(nodes), 40_000, 20_000)


def quick(digest: str, *nodes: str) -> Circle:
    return Circle(digest, digest, 2, ((0, 0), (1, 0)), frozenset(nodes), ("", 2, frozenset()))


def finding(kind: Kind, node: str, what: str = "", confidence: float = 0.8) -> Finding:
    return Finding(kind, node, 0.0, confidence, evidence=[f"{kind.value} {what}"], what=what)


def test_the_node_that_all_slow_groups_share_and_no_quick_one_is_suspected() -> None:
    pairs = [slow("1", "a", "b"), slow("2", "b", "c")]
    (one,) = suspect(pairs, [quick("3", "a", "c")], [])
    assert one.node == "b"
    assert one.confidence >= 0.9


def test_groups_within_a_node_say_nothing_for_its_network() -> None:
    (one,) = suspect([slow("1", "a", "b")], [quick("2", "b"), quick("3", "a", "c")], [])
    assert one.node == "b"


def test_one_group_of_all_and_no_signal_names_nobody() -> None:
    (one,) = suspect([slow("1", "a", "b", "c")], [], [])
    assert one.node == ""
    assert "a, b, c: no signal" in one.evidence[0]


def test_where_the_pattern_leaves_several_their_own_signals_choose() -> None:
    told = [finding(Kind.LINK_DEGRADED, "c", "mlx5_0")]
    (one,) = suspect([slow("1", "a", "b", "c")], [], told)
    assert one.node == "c"
    assert "mlx5_0" in one.evidence[-1]


def test_a_slow_peer_is_the_one_that_is_told_of_and_not_the_one_that_tells() -> None:
    told = [finding(Kind.PEER_SLOW, "a", "c"), finding(Kind.PEER_SLOW, "b", "c")]
    (one,) = suspect([slow("1", "a", "b", "c")], [], told)
    assert one.node == "c"


def test_two_nodes_with_the_same_signal_leave_it_open() -> None:
    told = [finding(Kind.LINK_DEGRADED, "b", "x"), finding(Kind.LINK_DEGRADED, "c", "x")]
    (one,) = suspect([slow("1", "a", "b", "c")], [], told)
    assert one.node == ""
    assert "do not agree" in one.evidence[0]


def test_a_link_that_came_and_went_is_told_and_names_nobody() -> None:
    told = [finding(Kind.LINK_FLAPPING, "b", "mlx5_1")]
    (one,) = suspect([slow("1", "a", "b", "c")], [], told)
    assert one.node == ""
    assert "no signal tells" in one.evidence[0]
    assert one.evidence[1:] == ("link_flapping mlx5_1",)


def test_a_degraded_link_is_believed_beside_one_that_came_and_went() -> None:
    told = [finding(Kind.LINK_FLAPPING, "b", "x", 1.0), finding(Kind.LINK_DEGRADED, "c", "y")]
    (one,) = suspect([slow("1", "a", "b", "c")], [], told)
    assert one.node == "c"


def test_two_nodes_that_find_each_other_slow_are_told_though_neither_is_chosen() -> None:
    told = [finding(Kind.PEER_SLOW, "a", "b"), finding(Kind.PEER_SLOW, "b", "a")]
    (one,) = suspect([slow("1", "a", "b")], [], told)
    assert one.node == ""
    assert one.evidence[1:] == ("peer_slow a", "peer_slow b")


def test_a_signal_of_a_node_whose_other_groups_are_quick_is_not_believed() -> None:
    told = [finding(Kind.LINK_DEGRADED, "a", "mlx5_0")]
    (one,) = suspect([slow("1", "a", "b")], [quick("2", "a", "c")], told)
    assert one.node == "b"


def test_two_troubles_at_once_are_told_apart() -> None:
    pairs = [slow("1", "a", "b"), slow("2", "b", "c"), slow("3", "d", "e"), slow("4", "e", "f")]
    quick_ones = [quick("5", "a", "c"), quick("6", "d", "f")]
    assert {one.node for one in suspect(pairs, quick_ones, [])} == {"b", "e"}


def test_a_group_that_lies_on_one_node_needs_no_network() -> None:
    (one,) = suspect([slow("1", "a")], [], [])
    assert one.is_inside
    assert one.node == "a"
