"""Nodes of other versions, or of another launch: they never run together."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy import formation
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport

MEMBER = AgentReport("a", "i", "running", 0, 1, 1, "", 1, 2, torch_version="2.13.0")
NEWCOMER = AgentReport("b", "j", "joining", -1, 1, 1, "", 1, 2, torch_version="2.13.0")
STRANGER = dataclasses.replace(NEWCOMER, torch_version="2.12.0")
PLAN = Plan(0, 1, "running", [Member("a", "i", 0, 0, 1)], 1)


def ends(newcomer: AgentReport) -> bool:
    rank = RankReport(0, 0, 1, 5, "forward", 0.0, 0.1, 0.1)
    cluster = Cluster(
        agents={"a": MEMBER, "b": newcomer},
        nodes={"a": NodeReport("a", "s", 1, 0, 1, 0, True, [rank])},
        plan=PLAN,
    )
    return bool(decide(cluster, DecisionContext(1, 9.0, 9.0, Settings())).writes)


def test_a_job_grows_for_a_node_of_its_own_versions_only() -> None:
    assert ends(NEWCOMER)
    assert not ends(STRANGER)


def test_a_restart_leaves_out_a_node_of_other_versions_and_goes_on() -> None:
    back = dataclasses.replace(MEMBER, state="joining")
    for joining in ([back, STRANGER], [STRANGER, back]):
        formed = formation.form(joining, PLAN.members, 0)
        assert isinstance(formed, formation.Formation)
        assert [member.node for member in formed.members] == ["a"]


def test_a_node_of_another_launch_takes_no_vacant_place() -> None:
    other = dataclasses.replace(NEWCOMER, launch="slurm-2")
    assert not ends(other)
    back = dataclasses.replace(MEMBER, state="joining", min_nodes=2)
    assert isinstance(formation.form([back, other], PLAN.members, 0), formation.NotFormed)


def test_another_command_of_the_same_user_takes_no_vacant_place() -> None:
    other = dataclasses.replace(NEWCOMER, launch="user ann", launch_command="y")
    member = dataclasses.replace(MEMBER, launch="user ann", launch_command="x")
    back = dataclasses.replace(member, state="joining", min_nodes=2)
    assert isinstance(formation.form([back, other], PLAN.members, 0), formation.NotFormed)
    alike = dataclasses.replace(other, launch_command="x")
    assert isinstance(formation.form([back, alike], PLAN.members, 0), formation.Formation)
    assert isinstance(formation.form([alike, other], (), 99.0), formation.Formation)
    named = [dataclasses.replace(one, has_launch_id=True) for one in (back, other)]
    assert isinstance(formation.form(named, PLAN.members, 0), formation.Formation)
    few = [dataclasses.replace(one, min_nodes=2) for one in (alike, other)]
    assert isinstance(formation.form(few, (), 99.0), formation.NotFormed)


def test_two_launches_that_wait_under_one_name_are_not_mixed() -> None:
    ones = [dataclasses.replace(NEWCOMER, node=n, min_nodes=2, launch="one") for n in "ac"]
    two = dataclasses.replace(NEWCOMER, node="b", min_nodes=2, launch="two")
    for joining in ([two, *ones], [*ones, two]):
        formed = formation.form(joining, (), 99.0)
        assert isinstance(formed, formation.Formation)
        assert [member.node for member in formed.members] == ["a", "c"]
    assert isinstance(formation.form([ones[0], two], (), 99.0), formation.NotFormed)


def test_without_a_survivor_nodes_of_different_versions_are_refused() -> None:
    both = [NEWCOMER, dataclasses.replace(STRANGER, node="c")]
    assert isinstance(formation.form(both, PLAN.members, 0), formation.Mismatch)
