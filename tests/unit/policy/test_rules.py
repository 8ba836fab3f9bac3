"""The small rules, one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_sidecar.config.settings import CheckpointSettings, PolicySettings, SidecarSettings
from holdfast_sidecar.policy import blame, budget, checkpoint_order, formation
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact, SavedPart
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import FINISHED, AgentReport, Exit, NodeReport, RankReport


def ended(
    rank: int, code: int, message: str = "", at: float = 0.0, forced: bool = False, step: int = 0
) -> Exit:
    return Exit(rank, rank, 1, code, at, rank, message, step, forced)


LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed"
UNLIKE = (
    "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:464] "
    "op.preamble.length <= op.nbytes. 32 vs 16. Is there a distributed collective mismatch?"
)


@pytest.mark.parametrize(
    ("exits", "culprit"),
    [
        ([ended(0, 1, "RuntimeError: Connection closed by peer", 1), ended(1, -9, "", 2)], 1),
        ([ended(0, 1, "gloo timed out", 1), ended(1, 1, "ValueError: bad", 2)], 1),
        ([ended(0, -6, "", 1), ended(1, -11, "", 2)], 1),
        ([ended(0, -9, "", 1, forced=True), ended(1, 1, "KeyError: 'x'", 2)], 1),
        ([ended(0, 3, "", 2), ended(1, 3, "", 1)], 1),
        ([ended(0, 1, "RuntimeError: gloo", 1), ended(1, 3, "", 2)], 1),
        ([ended(0, 0)], None),
        ([ended(0, 1, LOST, 1), ended(1, 1, "TypeError: no argument 'timeout'", 2)], 1),
        ([ended(0, 1, LOST, 1), ended(1, 1, "ValueError: process group not initialized", 2)], 1),
        ([ended(0, 1, LOST, 1), ended(1, -6, "", 2)], 1),
        ([ended(0, 1, LOST, 1), ended(1, 1, UNLIKE, 2)], 1),
        ([ended(0, 1, UNLIKE, 1), ended(1, 1, "ValueError: bad", 2)], 1),
        ([ended(0, 1, LOST, 1, step=7), ended(1, 0, "", 2, step=7)], 1),
        ([ended(0, 0, "", 1, step=7), ended(1, -6, "", 2, step=7)], 0),
        ([ended(0, 0, "", 1, step=7), ended(1, 1, UNLIKE, 2, step=7)], 1),
        ([ended(0, 0, "", 1, step=7), ended(1, 1, "ValueError: bad", 2, step=7)], 1),
        ([ended(0, 0, "", 1, step=9), ended(1, 1, LOST, 2, step=7)], 1),
        ([ended(0, 0, "", 1, step=7), ended(1, 0, "", 1, step=9), ended(2, 1, LOST, 2, step=9)], 0),
        ([ended(0, 0, "", 1, step=9), ended(1, 0, "", 1, step=9), ended(2, 1, LOST, 2, step=9)], 2),
        ([ended(0, 0, "", 1, step=7, forced=True), ended(1, 1, LOST, 2, step=7)], 1),
        ([ended(0, 0, "", 1, step=0), ended(1, 1, LOST, 2, step=5000)], 1),
        ([ended(0, 0, "", 1, step=0), ended(1, 0, "", 1, step=7), ended(2, 1, LOST, 2, step=8)], 1),
    ],
    ids=[
        "killed before a victim that reported first",
        "an error of its own before a lost peer",
        "a segfault before terminate",
        "what the launcher ended itself does not count",
        "else the first to end",
        "a code that the script chose before a victim's exception",
        "ending well is no failure",
        "an error of the code is its own, though it speaks of a timeout",
        "or of a process group",
        "what a library aborted before who says that it lost a peer",
        "who got something unexpected before who says that it lost a peer",
        "an error of its own before who got something unexpected",
        "who left before who lost it, in whatever order that was noticed",
        "who left before who was aborted for it",
        "who left is not why others differ in a collective",
        "who left is not why another one fails by itself",
        "who had come further than all that failed did not leave before its time",
        "who left earliest",
        "several that were where the others failed may have been through",
        "who left as it was told to by its launcher",
        "without whom the others made many steps was not needed",
        "nor does it hide who was",
    ],
)
def test_the_first_cause_is_told_from_its_victims(exits: list[Exit], culprit: int | None) -> None:
    found = blame.find_culprit(("node", exit_) for exit_ in exits)
    assert (None if found is None else found.rank) == culprit


def test_who_left_before_its_time_is_told_in_words_and_how_sure_that_is() -> None:
    lost = ended(0, 1, LOST, step=7)
    found = blame.find_culprit([("a", lost), ("b", ended(1, 0, step=7))])
    assert found is not None
    assert (found.node, found.confidence) == ("b", 0.8)
    assert blame.describe(found.exit) == "left by exit code 0 at step 7 while others went on"


POLICY = PolicySettings()


def agent(node: str, **changes: object) -> AgentReport:
    values: dict[str, object] = {
        "node": node, "incarnation": "i", "state": "joining", "attempt": -1, "beat": 1,
        "slots": 2, "address": "", "min_nodes": 2, "max_nodes": 3, "last_call_s": 30.0,
    }  # fmt: skip
    return AgentReport(**(values | changes))  # type: ignore[arg-type]


def test_the_last_call_holds_a_first_attempt_open_for_more_nodes_only() -> None:
    two = [agent("a"), agent("b")]
    early = formation.form(two, (), 29)
    assert isinstance(early, formation.NotFormed)
    assert "last call" in early.reason
    assert isinstance(formation.form(two, (), 30), formation.Formation)
    again = formation.form(two, (Member("a", "i", 0, 0, 2),), 0)
    assert isinstance(again, formation.Formation)


def test_a_member_has_the_role_its_agent_reports() -> None:
    formed = formation.form([agent("a", role="actor"), agent("b", role="learner")], (), 30)
    assert isinstance(formed, formation.Formation)
    assert [m.role for m in formed.members] == ["actor", "learner"]


def test_nodes_are_seated_in_natural_order_and_survivors_stay_seated() -> None:
    first = formation.form([agent("n10"), agent("n2"), agent("n1")], (), 0)
    assert isinstance(first, formation.Formation)
    assert [m.node for m in first.members] == ["n1", "n2", "n10"]
    again = formation.form([agent("n10"), agent("n1"), agent("n3")], first.members, 0)
    assert isinstance(again, formation.Formation)
    assert [m.node for m in again.members] == ["n1", "n3", "n10"]


def test_nodes_of_different_versions_are_refused_by_name() -> None:
    mixed = [agent("a", torch_version="2.13.0"), agent("b", torch_version="2.12.0")]
    refused = formation.form(mixed, (), 99)
    assert isinstance(refused, formation.Mismatch)
    assert "a has 2.13.0, b has 2.12.0" in refused.message


def failure(cause: str = "crash", signature: str = "", at: float = 0.0) -> Incident:
    return Incident("i", 0, cause, detected_unix_s=at, decided="restart", signature=signature)


def test_hardware_that_uses_up_the_budget_may_be_another_node_s_to_do_better() -> None:
    settings = PolicySettings(budget=1)
    for cause, exit_code in (("gpu", budget.EXIT_REQUEUE), ("crash", budget.EXIT_FAILED)):
        stopped = budget.decide(failure(cause), [failure(cause)], 1, -1, settings, 50)
        assert isinstance(stopped, budget.Stop)
        assert stopped.exit_code == exit_code


def test_restarts_are_budgeted_per_cause_and_window() -> None:
    settings = PolicySettings(budget=2, budget_window_s=100)
    crashes = [failure(at=0), failure(at=1)]
    assert isinstance(budget.decide(failure(), crashes, 2, -1, settings, 50), budget.Stop)
    assert isinstance(budget.decide(failure(), crashes, 2, -1, settings, 500), budget.Restart)
    assert isinstance(budget.decide(failure("hang"), crashes, 2, -1, settings, 50), budget.Restart)


def test_the_pause_starts_with_the_third_and_doubles_up_to_its_limit() -> None:
    settings = PolicySettings(backoff_s=1, backoff_limit_s=3)
    assert [budget.pause_s(n, settings) for n in range(6)] == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize(("cap", "stops"), [(0, True), (1, True), (2, False), (-1, False)])
def test_a_cap_counts_all_restarts_of_this_run(cap: int, stops: bool) -> None:
    of_an_earlier_run = [failure() for _ in range(5)]
    verdict = budget.decide(failure(), of_an_earlier_run, 1, cap, PolicySettings(), 0)
    assert isinstance(verdict, budget.Stop) == stops


def rank(number: int, **changes: object) -> RankReport:
    values: dict[str, object] = {
        "rank": number, "local_rank": number, "pid": 1, "step": 10, "phase": "forward",
        "phase_age_s": 0.0, "step_s": 0.1, "own_s": 0.1, "state_registered": True,
    }  # fmt: skip
    return RankReport(**(values | changes))  # type: ignore[arg-type]


def test_a_step_is_armed_beyond_the_margin_of_the_fastest_rank_and_on_the_grid() -> None:
    ranks = {0: rank(0, step=10), 1: rank(1, step=12, step_s=0.2)}
    assert checkpoint_order.step_to_arm(ranks, 1.0, 0) == 12 + 10 + 1
    assert checkpoint_order.step_to_arm(ranks, 1.0, 50) == 50


def test_the_margin_doubles_after_each_order_that_came_too_late() -> None:
    settings = SidecarSettings()
    once = checkpoint_order.margin_s(settings, 0)
    assert checkpoint_order.margin_s(settings, 2) == 4 * once
    assert checkpoint_order.margin_s(settings, 99) == checkpoint_order.margin_s(settings, 4)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"state_registered": False}, "three lines"),
        ({"ending": 1}, "ended"),
        ({"phase": "restoring"}, "starting"),
        ({"phase": "starting", "state_registered": False}, "starting"),
    ],
)
def test_a_checkpoint_is_not_armed_while_some_rank_can_not_save(
    changed: dict[str, object], says: str
) -> None:
    plan = Plan(0, 1, "running", world_size=2)
    assert says in checkpoint_order.obstacle(plan, {0: rank(0), 1: rank(1, **changed)})
    assert "1 of 2" in checkpoint_order.obstacle(plan, {0: rank(0)})


ORDER = CheckpointOrder("c", 0, 1, 20, "/c", "armed", deadline_s=10, write_timeout_s=50)
PLAN = Plan(
    0, 1, "running", members=[Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)], world_size=2
)


def judged(
    states: dict[str, str],
    files: bool = True,
    plan: Plan = PLAN,
    ranks: dict[int, RankReport] | None = None,
    still_for_s: float = 1,
) -> object:
    facts = {"f": FileFact(1, "aa")} if files else {}
    nodes = {
        name: NodeReport(
            name, "i", 1, 0, 1, 0, True, saved=SavedPart("c", {str(i): states[name]}, facts)
        )
        for i, name in enumerate(("a", "b"))
        if name in states
    }
    return checkpoint_order.judge(
        ORDER, plan, nodes, ranks or {0: rank(0), 1: rank(1)}, still_for_s
    )


def test_a_checkpoint_is_complete_only_when_all_ranks_saved_and_all_nodes_hashed() -> None:
    assert isinstance(judged({"a": "saved", "b": "saved"}), checkpoint_order.Complete)
    assert isinstance(judged({"a": "saved", "b": "saving"}), checkpoint_order.SavePending)
    assert isinstance(judged({"a": "saved"}), checkpoint_order.SavePending)
    assert isinstance(
        judged({"a": "saved", "b": "saved"}, files=False), checkpoint_order.SavePending
    )


def test_ranks_that_saved_at_different_boundaries_make_it_void() -> None:
    def node(name: str, step: int) -> NodeReport:
        part = SavedPart("c", {str("ab".index(name)): "copied"}, step=step)
        return NodeReport(name, "i", 1, 0, 1, 0, True, saved=part)

    ranks = {0: rank(0), 1: rank(1)}
    same = {name: node(name, 24) for name in "ab"}
    other = same | {"b": node("b", 28)}
    assert isinstance(checkpoint_order.judge(ORDER, PLAN, same, ranks, 1), checkpoint_order.Copied)
    assert checkpoint_order.judge(ORDER, PLAN, other, ranks, 1) == checkpoint_order.SaveVoid(
        "ranks came to different boundaries: 24, 28"
    )
    assert not checkpoint_order.is_copied(ORDER, PLAN, other)


def test_an_order_is_of_the_boundary_at_which_ranks_saved() -> None:
    order = CheckpointOrder("c", 0, 1, 20, "s3://b/r/step-00000020-c", "armed", deadline_s=10)
    moved = order.at(24)
    assert (moved.step, moved.path) == (24, "s3://b/r/step-00000024-c")


def test_ranks_that_write_are_waited_for_longer_than_ranks_that_do_not_come() -> None:
    writing = {"a": "saving", "b": "armed"}
    assert isinstance(judged(writing, still_for_s=59), checkpoint_order.SavePending)
    assert isinstance(judged(writing, still_for_s=61), checkpoint_order.SaveVoid)
    hashing = {"a": "saved", "b": "saved"}
    assert isinstance(judged(hashing, files=False, still_for_s=59), checkpoint_order.SavePending)


def test_progress_is_bytes_of_this_order_and_nodes_that_are_through() -> None:
    def node(name: str, **part: Any) -> NodeReport:
        return NodeReport(name, "i", 1, 0, 1, 0, True, saved=SavedPart(**part))

    nodes = {
        "a": node("a", identifier="c", files={"f": FileFact(1, "aa")}, done_bytes=7),
        "b": node("b", identifier="c", done_bytes=5),
        "c": node("c", identifier="older", done_bytes=90),
        "d": NodeReport("d", "i", 1, 0, 1, 0, True),
    }
    assert checkpoint_order.how_far(ORDER, nodes) == (1, 12)


@pytest.mark.parametrize(
    "verdict",
    [
        judged({"a": "saved", "b": "missed"}),
        judged({"a": "armed", "b": "armed"}, still_for_s=11),
        judged({"a": "saved", "b": "saved"}, plan=Plan(1, 1, "running")),
        judged({"a": "saved", "b": "saved"}, ranks={0: rank(0, is_loss_finite=False), 1: rank(1)}),
        judged({"a": "armed", "b": "armed"}, ranks={0: rank(0, ending=1), 1: rank(1)}),
    ],
    ids=["missed", "deadline", "attempt over", "not finite", "ended early"],
)
def test_an_order_is_void_for_all_as_soon_as_it_can_not_be_complete(verdict: object) -> None:
    assert isinstance(verdict, checkpoint_order.SaveVoid)
    assert verdict.reason


@pytest.mark.parametrize(
    ("states", "ranks"),
    [
        ({"a": "left", "b": "armed"}, None),
        ({"a": "armed", "b": "armed"}, {0: rank(0, ending=FINISHED), 1: rank(1)}),
    ],
    ids=["said", "finished"],
)
def test_that_a_job_ends_before_the_step_is_no_trouble(
    states: dict[str, str], ranks: dict[int, RankReport] | None
) -> None:
    verdict = judged(states, ranks=ranks)
    assert isinstance(verdict, checkpoint_order.SaveVoid)
    assert dataclasses.replace(ORDER, state="void", reason=verdict.reason).is_overtaken


def test_a_schedule_by_time_waits_and_one_by_steps_arms_ahead() -> None:
    ranks = {0: rank(0, step=10)}
    by_time = CheckpointSettings(dir="/c")
    assert not checkpoint_order.is_due(by_time, ranks, 5, 59, 60.0)
    assert checkpoint_order.is_due(by_time, ranks, 5, 60, 60.0)
    assert not checkpoint_order.is_due(by_time, ranks, 10, 60, 60.0), "nothing new to save"
    assert not checkpoint_order.is_due(CheckpointSettings(), ranks, 5, 60, 60.0), "nowhere to"
    assert checkpoint_order.is_due(CheckpointSettings(every_steps=50), ranks, 5, 0, 60.0)
