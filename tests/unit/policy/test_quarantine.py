from __future__ import annotations

from holdfast_sidecar.policy.quarantine import bearable, is_kept_out, lasting, part_of
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import AgentReport


def agent(node: str, machine: str = "") -> AgentReport:
    return AgentReport(node, "i", "joining", 0, 1, 1, "", 2, 3, machine=machine)


def out(part: str, since: float = 0.0, node: str = "n") -> Quarantine:
    return Quarantine(part, node, since, since + 100.0)


def test_a_machine_is_known_again_under_another_name() -> None:
    bad = agent("n1", "m1")
    part = part_of(bad, [bad, agent("n2", "m2")])
    assert is_kept_out(agent("n9", "m1"), [out(part)])
    assert not is_kept_out(agent("n1", "m3"), [out(part)])


def test_where_machines_share_their_id_the_name_counts_too() -> None:
    """Containers of one image, clones of one virtual machine, a test on one host."""
    bad, other = agent("n1", "same"), agent("n2", "same")
    part = part_of(bad, [bad, other])
    assert is_kept_out(bad, [out(part)])
    assert not is_kept_out(other, [out(part)])


def test_a_launcher_without_an_id_is_known_by_its_name() -> None:
    bad, other = agent("n1"), agent("n2")
    part = part_of(bad, [bad, other])
    assert is_kept_out(bad, [out(part)])
    assert not is_kept_out(other, [out(part)])


def test_it_ends() -> None:
    outside = [out("m1", since=0.0), out("m2", since=50.0)]
    assert lasting(outside, 99.0) == outside
    assert lasting(outside, 100.0) == outside[1:]
    assert lasting(outside, 150.0) == []


def test_the_minimum_of_nodes_stays_and_the_oldest_is_lifted_for_it() -> None:
    waiting = [agent("n1", "m1"), agent("n2", "m2"), agent("n3", "m3")]
    outside = [out("m2", since=9.0), out("m1", since=1.0)]
    assert bearable(outside, waiting, 1) == outside
    assert bearable(outside, waiting, 2) == [outside[0]]
    assert bearable(outside, waiting, 3) == []


def test_nothing_is_lifted_that_would_be_no_help() -> None:
    outside = [out("m1"), out("m8", since=-1.0)]
    assert bearable(outside, [agent("n1", "m1"), agent("n2", "m2")], 3) == outside
    assert bearable(outside, [agent("n1", "m1"), agent("n2", "m2")], 2) == [outside[1]]
