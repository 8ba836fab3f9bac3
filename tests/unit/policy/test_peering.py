from __future__ import annotations

import random

import pytest

from holdfast_sidecar.policy import replication
from holdfast_sidecar.policy.replication import (
    Copy,
    copy_to_overwrite,
    is_abandoned,
    judge_peers,
    pair,
)
from holdfast_sidecar.records.checkpoint import PeerOrder, SnapshotReport
from holdfast_sidecar.records.plan import Candidate, Member, Plan
from holdfast_sidecar.records.reports import NodeReport


@pytest.mark.parametrize(
    ("sources", "domains", "pairs"),
    [
        ("a", {"a": ""}, {}),
        ("ab", {"a": "", "b": ""}, {"a": "b", "b": "a"}),
        ("abc", {"a": "", "b": "", "c": ""}, {"a": "b", "b": "c", "c": "a"}),
        ("ab", {"a": "", "b": "", "s": ""}, {"a": "b", "b": "s"}),
        ("a", {"a": "", "s": ""}, {"a": "s"}),
        ("abcd", {"a": "1", "b": "1", "c": "2", "d": "2"}, dict(zip("abcd", "cdab", strict=True))),
        ("abc", {"a": "1", "b": "1", "c": "2"}, {"a": "c", "b": "a", "c": "b"}),
        ("ab", {"a": "1", "b": "1"}, {"a": "b", "b": "a"}),
        ("ab", {"b": ""}, {"a": "b"}),
        ("ab", {"a": "", "s": ""}, {"a": "s", "b": "a"}),
        ("ab", {}, {}),
    ],
    ids=[
        "one node",
        "two nodes",
        "a ring of three",
        "a spare holds copies too",
        "one node and a spare",
        "the other rack",
        "as far away as can be",
        "one rack is better than nothing",
        "a holder without room",
        "a spare in its place",
        "nobody has room",
    ],
)
def test_who_keeps_whose_copies(
    sources: str, domains: dict[str, str], pairs: dict[str, str]
) -> None:
    assert pair(list(sources), domains, {}) == pairs


def test_pairs_are_spread_and_far_apart_whatever_the_nodes() -> None:
    """Each holder has one source; inside a domain only where no arrangement avoids it."""
    for seed in range(300):
        chance = random.Random(seed)
        nodes = [f"n{index}" for index in range(chance.randint(2, 12))]
        domains = {node: chance.choice(["", "r1", "r2", "r3"]) for node in nodes}
        pairs = pair(nodes, domains, {})
        assert sorted(pairs) == sorted(nodes), seed
        assert sorted(pairs.values()) == sorted(nodes), seed
        assert all(source != holder for source, holder in pairs.items()), seed
        near = sum(domains[s] != "" and domains[s] == domains[h] for s, h in pairs.items())
        largest = max(
            (sum(d == rack for d in domains.values()) for rack in {*domains.values()} - {""}),
            default=0,
        )
        assert near == max(0, 2 * largest - len(nodes)), seed


def test_pairs_stay_while_all_are_there() -> None:
    three = {"a": "", "b": "", "c": ""}
    pairs = pair("abc", three, {})
    odd = {"a": "c", "b": "a", "c": "b"}
    assert pair("abc", three, pairs) == pairs
    assert pair("abc", three, odd) == odd, "the other ring is as good"
    assert pair("abc", {**three, "d": ""}, odd) == odd, "a spare came"
    assert pair([*"ab", "d"], {"a": "", "b": "", "d": ""}, odd) == {"a": "b", "b": "d", "d": "a"}
    racks = {"a": "1", "b": "1", "c": "2", "d": "2"}
    assert pair("abcd", racks, {"a": "b", "b": "c", "c": "d", "d": "a"}) == {
        "a": "c",
        "b": "d",
        "c": "a",
        "d": "b",
    }, "the racks became known"


A3, A7, B5 = Copy(1, 3), Copy(1, 7), Copy(0, 5)


@pytest.mark.parametrize(
    ("copies", "through", "may_be_newest", "file"),
    [
        ({0: None, 1: None}, -1, False, 0),
        ({0: A3, 1: None}, 3, False, 1),
        ({0: A3, 1: A7}, 7, False, 0),
        ({0: A3, 1: A7}, 3, False, 1),
        ({0: A7, 1: A3}, 3, False, 0),
        ({0: A3, 1: A7}, 3, True, None),
        ({0: A3, 1: A7}, 7, True, 0),
        ({0: B5, 1: A3}, -1, False, 1),
        ({0: B5, 1: A3}, -1, True, None),
        ({0: B5, 1: Copy(0, 4)}, -1, True, 1),
        ({0: B5, 1: A3}, 3, True, 0),
    ],
    ids=[
        "nothing here yet",
        "an empty one first",
        "the older one",
        "what came to nothing, not what is through",
        "whichever file it is in",
        "in step, the newest may be what all have",
        "until it is known that all have it",
        "an earlier attempt's stays until one of this is through",
        "in step too",
        "the older one of an earlier attempt",
        "then it goes",
    ],
)
def test_which_copy_is_overwritten(
    copies: dict[int, Copy | None], through: int, may_be_newest: bool, file: int | None
) -> None:
    assert copy_to_overwrite(copies, 1, through, may_be_newest=may_be_newest) == file


def test_a_copy_of_a_step_that_exists_nowhere_makes_room() -> None:
    copies = {0: Copy(0, 67), 1: Copy(1, 74)}
    assert copy_to_overwrite(copies, 1, 67, settled=73, may_be_newest=True) is None
    assert copy_to_overwrite(copies, 1, 67, settled=74, may_be_newest=True) == 1
    assert copy_to_overwrite(copies, 1, 74, settled=74, may_be_newest=True) == 0, "it exists"


SNAPSHOT = Candidate("snapshot", "", 5, tier="snapshot")
RESUMED = Plan(1, 4, "running", resume=[SNAPSHOT])
STARTED_ELSEWHERE = Plan(1, 4, "running", resume=[Candidate("c", "/c", 2)])


@pytest.mark.parametrize(
    ("copy", "plan", "resumed", "abandoned"),
    [
        (Copy(1, 9), RESUMED, 5, False),
        (Copy(0, 5), RESUMED, 5, False),
        (Copy(0, 6), RESUMED, None, False),
        (Copy(0, 6), RESUMED, 5, True),
        (Copy(0, 5), STARTED_ELSEWHERE, None, True),
        (Copy(0, 5), Plan(1, 4, "ended", resume=[]), None, False),
        (Copy(2, 5), RESUMED, 5, True),
    ],
    ids=[
        "of this attempt",
        "what it resumed from",
        "it has not begun yet",
        "ahead of where it began",
        "it does not begin from snapshots",
        "no attempt runs, who knows",
        "of an earlier run",
    ],
)
def test_copies_of_a_branch_that_was_left(
    copy: Copy, plan: Plan, resumed: int | None, abandoned: bool
) -> None:
    assert is_abandoned(copy, plan, resumed) is abandoned


PLAN = Plan(2, 7, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)], 4)
ORDER = PeerOrder("p1", 2, 7, 40, "armed", 10.0, {"a": "b", "b": "a"}, through=20)


def report(node: str, pulled: str = "", copied: str = "copied", step: int = 40) -> NodeReport:
    snapshot = SnapshotReport(2, copied_for={"p1": copied}, copied_step=step, pulled=pulled)
    return NodeReport(node, "i", 1, 2, 7, 2, True, snapshot=snapshot)


def verdict(
    *reports: NodeReport, plan: Plan = PLAN, lost: tuple[str, ...] = (), armed_for: float = 1.0
) -> str:
    nodes = {each.node: each for each in reports}
    outcome = judge_peers(ORDER, plan, nodes, lost, armed_for)
    return (
        outcome.reason
        if isinstance(outcome, replication.ReplicationVoid)
        else type(outcome).__name__
    )


def test_what_became_of_an_order() -> None:
    a, b = report("a", "p1"), report("b", "p1")
    assert verdict(a, b) == "Through"
    assert verdict(a, report("b")) == "ReplicationPending"
    assert verdict(a, report("b", "p0")) == "ReplicationPending"
    assert "node b did not fetch it" in verdict(a, report("b"), armed_for=11.0)
    assert verdict(a, b, armed_for=11.0) == "Through"
    assert "no snapshot of step 40" in verdict(report("a", copied="void"), b)
    assert verdict(a, b, lost=("b",)) == "node b is lost"
    assert verdict(a, b, lost=("c",)) == "Through"
    assert verdict(a) == "node b says nothing of snapshots"
    assert verdict(a, b, plan=Plan(3, 7, "running")) == "the attempt ended"


def test_a_snapshot_that_gradients_put_off_is_copied_where_it_was_taken() -> None:
    assert judge_peers(
        ORDER, PLAN, nodes_of(report("a", step=43), report("b", step=43)), (), 1.0
    ) == (replication.Moved(43))
    waiting = NodeReport("b", "i", 1, 2, 7, 2, True, snapshot=SnapshotReport(2))
    assert verdict(report("a", step=43), waiting) == "ReplicationPending"
    assert "different boundaries" in verdict(report("a", step=43), report("b", step=44))


def nodes_of(*reports: NodeReport) -> dict[str, NodeReport]:
    return {each.node: each for each in reports}


def test_ranks_of_a_node_are_those_of_its_place() -> None:
    assert list(replication.ranks_of(PLAN, "b")) == [2, 3]
    assert list(replication.ranks_of(PLAN, "c")) == []
