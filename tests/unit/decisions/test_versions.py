"""Nodes of other versions: refused at a job's beginning, left waiting by a job that runs."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.decisions import formation
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.leader import decide
from holdfast_sidecar.decisions.outcome import Circumstances
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.rank import RankReport
from holdfast_sidecar.settings import Settings

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
    return bool(decide(cluster, Circumstances(1, 9.0, 9.0, Settings())).writes)


def test_a_job_grows_for_a_node_of_its_own_versions_only() -> None:
    assert ends(NEWCOMER)
    assert not ends(STRANGER)


def test_a_restart_leaves_out_a_node_of_other_versions_and_goes_on() -> None:
    back = dataclasses.replace(MEMBER, state="joining")
    for joining in ([back, STRANGER], [STRANGER, back]):
        formed = formation.form(joining, PLAN.members, 0)
        assert isinstance(formed, formation.Formation)
        assert [member.node for member in formed.members] == ["a"]


def test_without_a_survivor_nodes_of_different_versions_are_refused() -> None:
    both = [NEWCOMER, dataclasses.replace(STRANGER, node="c")]
    assert isinstance(formation.form(both, PLAN.members, 0), formation.Mismatch)
