"""Commands for nodes that go and come are given to one sidecar each, once."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.config.settings import NodesSettings, Settings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.formation import with_hooks
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.records.plan import HookRun, Plan, Quarantine
from holdfast_sidecar.records.reports import NodeReport

BOTH = NodesSettings(on_quarantine="drain {node}", on_return="resume {node}")

ONE = Quarantine("m", "n1", 5.0, 99.0, ["node n1 needs a reboot"], gpu="G", remedy="reboot_node")

OUT = Plan(1, 1, "running", outside=[ONE])


def node(name: str, incarnation: str = "i") -> NodeReport:
    return NodeReport(name, incarnation, 1, 0, 0, attempt=0, launcher_alive=True)


def follow(
    plan: Plan,
    *nodes: NodeReport,
    leader: str = "a/i",
    settings: NodesSettings = BOTH,
    unattended: tuple[str, ...] = (),
) -> Plan:
    cluster = Cluster(nodes={one.node: one for one in nodes}, unattended=frozenset(unattended))
    return with_hooks(
        plan, cluster, DecisionContext(1, 1.0, 1.0, Settings(nodes=settings), leader=leader)
    )


def came_back(plan: Plan) -> Plan:
    return dataclasses.replace(plan, outside=[])


def done(plan: Plan, outcome: str = "done") -> NodeReport:
    (run,) = plan.hooks
    told = NodeReport("a", "i", 1, 0, 0, attempt=0, launcher_alive=True, hooks={run.key: outcome})
    assert run.by == told.candidate
    return told


def test_without_a_command_nothing_is_kept_of_it() -> None:
    assert follow(OUT, node("a"), settings=NodesSettings()) == OUT


def test_the_leader_runs_it_with_what_it_is_about() -> None:
    plan = follow(OUT, node("a"))
    reason = "node n1 needs a reboot"
    assert plan.hooks == [
        HookRun("m", "n1", 5.0, "quarantine", "a/i", "", reason, "G", "reboot_node")
    ]
    assert follow(plan, node("a")) == plan


def test_its_outcome_is_taken_down_and_it_is_not_run_again() -> None:
    plan = follow(OUT, node("a"))
    over = follow(plan, done(plan))
    assert [run.outcome for run in over.hooks] == ["done"]
    assert follow(over, node("b"), leader="b/i") == over


def test_a_new_leader_leaves_it_to_who_runs_it_and_takes_it_over_once_that_is_gone() -> None:
    plan = follow(OUT, node("a"))
    assert follow(plan, node("a"), node("b"), leader="b/i") == plan
    for nodes, unattended in (
        ((node("b"),), ()),
        ((node("a", "another"), node("b")), ()),
        ((node("a"), node("b")), ("a",)),
    ):
        taken = follow(plan, *nodes, leader="b/i", unattended=unattended)
        assert [run.by for run in taken.hooks] == ["b/i"]


def test_who_comes_back_is_told_of_after_its_going_was_and_then_forgotten() -> None:
    plan = follow(OUT, node("a"))
    early = follow(came_back(plan), node("a"))
    assert [(run.event, run.outcome) for run in early.hooks] == [("quarantine", "")]
    back = follow(early, done(early))
    assert [(run.event, run.by, run.outcome) for run in back.hooks] == [("return", "a/i", "")]
    assert follow(back, done(back)).hooks == []


def test_a_return_that_could_not_be_told_is_known_until_the_node_goes_again() -> None:
    plan = follow(OUT, node("a"))
    back = follow(came_back(plan), done(plan))
    failed = follow(back, done(back, "exit code 1"))
    assert [(run.event, run.outcome) for run in failed.hooks] == [("return", "exit code 1")]
    assert follow(failed, node("b"), leader="b/i") == failed
    again = dataclasses.replace(failed, outside=[dataclasses.replace(ONE, since_unix_s=7.0)])
    gone = follow(again, node("a"))
    assert gone.hooks == []
    assert [run.key for run in follow(gone, node("a")).hooks] == ["quarantine:m:7.000"]


def test_who_goes_again_meanwhile_is_told_of_after_that() -> None:
    plan = follow(OUT, node("a"))
    back = follow(came_back(plan), done(plan))
    again = dataclasses.replace(back, outside=[dataclasses.replace(ONE, since_unix_s=7.0)])
    assert [run.event for run in follow(again, node("a")).hooks] == ["return"]
    over = follow(again, done(again))
    assert over.hooks == []
    assert [run.key for run in follow(over, node("a")).hooks] == ["quarantine:m:7.000"]


def test_a_quarantine_that_is_renewed_is_the_same() -> None:
    plan = follow(OUT, node("a"))
    over = follow(plan, done(plan))
    renewed = dataclasses.replace(over, outside=[dataclasses.replace(ONE, since_unix_s=7.0)])
    assert follow(renewed, node("a")) == renewed


def test_only_one_of_the_two_may_be_set() -> None:
    only_return = NodesSettings(on_return="resume {node}")
    plan = follow(OUT, node("a"), settings=only_return)
    assert [run.by for run in plan.hooks] == [""]
    back = follow(came_back(plan), node("a"), settings=only_return)
    assert [(run.event, run.by) for run in back.hooks] == [("return", "a/i")]
    only_going = NodesSettings(on_quarantine="drain {node}")
    plan = follow(OUT, node("a"), settings=only_going)
    assert follow(came_back(plan), done(plan), settings=only_going).hooks == []
