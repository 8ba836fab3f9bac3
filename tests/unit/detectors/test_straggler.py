from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.detectors.scene import history, look, moment, peer, ranks, record, steps

from holdfast.page import Record
from holdfast_sidecar.detectors.straggler import find_stragglers
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Ranks
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.roles import read_roles
from holdfast_sidecar.settings import StragglerSettings

SETTINGS = StragglerSettings()


def judge(scene: Ranks) -> list[Finding]:
    return list(find_stragglers(scene, SETTINGS, moment(1.0)))


def pair(slow_ms: float, count: int = 20, peer_ms: float = 20.0) -> Ranks:
    """Rank 0 needs `slow_ms` forward; rank 1, as long for the step, waits for it."""
    slow = look(1.0, rank=0, records=steps(count, forward=slow_ms, backward=20))
    quick = look(
        1.0, rank=1, records=steps(count, forward=peer_ms, backward=20 + slow_ms - peer_ms)
    )
    return ranks(history(slow), history(quick))


def test_the_rank_whose_own_work_takes_longer_is_named_and_not_who_waits_for_it() -> None:
    (finding,) = judge(pair(30.0))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.STRAGGLER, [0], False)
    assert "30.0 ms" in finding.evidence[0]


def test_peers_of_other_nodes_count() -> None:
    mine = history(look(1.0, records=steps(20, forward=30.0, backward=20)))
    others = [peer(rank, own_s=0.020) for rank in (1, 2, 3)]
    assert [f.ranks for f in judge(ranks(mine, peers=others))] == [[0]]
    assert judge(ranks(mine, peers=[peer(1, own_s=0.029)])) == []


@pytest.mark.parametrize(
    "scene",
    [
        pair(24.0),
        pair(30.0, count=9),
        pair(2.0, peer_ms=1.0),
        ranks(history(look(1.0, records=steps(20, forward=30.0)))),
    ],
    ids=["within the ratio", "too few steps", "nothing beside the step", "no peers"],
)
def test_it_is_quiet_when(scene: Ranks) -> None:
    assert judge(scene) == []


def test_a_burst_of_slow_steps_that_lasts_less_than_two_seconds_names_nobody() -> None:
    def at(step: int, forward_ms: float) -> Record:
        return replace(record(step, forward=forward_ms, backward=20), end_ns=step * 50_000_000)

    burst = tuple(at(step, 40.0 if step > 32 else 20.0) for step in range(1, 43))
    lasting = tuple(at(step, 40.0 if step > 3 else 20.0) for step in range(1, 45))
    quick = history(look(1.0, rank=1, records=steps(42, forward=20, backward=40)))
    assert judge(ranks(history(look(1.0, records=burst)), quick)) == []
    assert judge(ranks(history(look(1.0, records=lasting[:40])), quick)) == []
    assert [f.ranks for f in judge(ranks(history(look(1.0, records=lasting)), quick))] == [[0]]


def test_one_odd_step_names_nobody() -> None:
    odd = (*steps(19, forward=20, backward=20), *steps(1, forward=400, backward=20))
    quick = steps(20, forward=20, backward=20)
    scene = ranks(
        history(look(1.0, rank=0, records=odd)), history(look(1.0, 2, rank=1, records=quick))
    )
    assert judge(scene) == []


def test_a_rank_is_slow_only_beside_those_of_its_role() -> None:
    mine = history(look(1.0, records=steps(20, forward=30.0, backward=20)))
    others = ranks(mine, peers=[peer(rank, own_s=0.020) for rank in (1, 2, 3)])
    alike = replace(others, roles=dict.fromkeys(range(4), "trainer"))
    assert [f.ranks for f in judge(alike)] == [[0]]
    other_work = replace(others, roles={0: "reader", 1: "trainer", 2: "trainer", 3: "trainer"})
    assert judge(other_work) == []
    one_alike = replace(others, roles={0: "reader", 1: "trainer", 2: "reader", 3: "trainer"})
    assert [f.ranks for f in judge(one_alike)] == [[0]]


def test_roles_are_those_of_the_plan_where_there_are_several() -> None:
    def plan(*roles: str) -> Plan:
        members = [Member(f"n{n}", "i", n, 2 * n, 2, role) for n, role in enumerate(roles)]
        return Plan(3, 1, "running", members)

    assert read_roles(plan("a", "b"), 3) == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert (
        read_roles(plan("a", "a"), 3) == read_roles(plan("a", "b"), 2) == read_roles(None, 3) == {}
    )
