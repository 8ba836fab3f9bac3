"""Restart in place, without the node, further back, stop: pure rules, then whole jobs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import ModeSettings, PolicySettings, Settings
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.policy.blame import is_of_script
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, WITHOUT_NODE, held_against
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.exclusion import Way
from holdfast_sidecar.policy.restart import JITTER, ROLL_BACK, find_way, is_stuck, jittered
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit

NOW = 5000.0


def failure(attempt: int, part: str = "m1", **given: object) -> Incident:
    facts = {
        "identifier": f"i{attempt}",
        "cause": "crash",
        "culprit_node": part,
        "culprit_ranks": [0],
        "confidence": 0.95,
        "detected_unix_s": NOW - 100 + attempt,
        "decided": "restart",
        "culprit_part": part,
        "step_reached": 10 * attempt,
    }
    return Incident(attempt=attempt, **(facts | given))  # type: ignore[arg-type]


def count(*incidents: Incident) -> int:
    return len(held_against(incidents[-1], incidents[:-1]))


def test_failures_of_one_machine_are_counted() -> None:
    assert count(failure(1), failure(2), failure(3)) == 3
    assert count(failure(1), failure(2, "m2", culprit_ranks=[4]), failure(3)) == 2
    assert count(failure(1), failure(2, cause="hang"), failure(3, cause="node_lost")) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"is_of_script": True},
        {"cause": "hang", "signature": "rank 3 skipped an all_reduce"},
        {"evidence": ["rank 0: ended by SIGKILL", "was killed by the kernel's OOM killer, as"]},
        {"confidence": 0.5},
        {"culprit_part": ""},
        {"cause": "preempted"},
        {"cause": "restart"},
        {"cause": "node_left"},
    ],
    ids=lambda given: " ".join(map(str, given.values())),
)
def test_what_blames_no_machine(given: dict[str, Any]) -> None:
    assert count(failure(1), failure(2), failure(3, **given)) == 0
    assert count(failure(1), failure(2, **given), failure(3)) == 2


def test_what_follows_its_rank_to_another_machine_is_the_rank_s_own() -> None:
    """The rank that always runs out of memory would drive every node out in turn."""
    moved = failure(4, "m2", culprit_ranks=[0])
    assert count(failure(1), failure(2), failure(3, escalation=WITHOUT_NODE), moved) == 0
    assert count(failure(1), dataclasses.replace(moved, culprit_ranks=[5])) == 1


def test_what_a_quarantine_has_answered_does_not_count_again() -> None:
    answered = failure(3, escalation=WITHOUT_NODE)
    assert count(failure(1), failure(2), answered, failure(4)) == 1
    assert count(failure(1), failure(2), answered, failure(4), failure(5)) == 2


@pytest.mark.parametrize(
    ("exit_code", "message", "is_own"),
    [
        (1, "ValueError: boom", True),
        (3, "", True),
        (1, "RuntimeError: CUDA out of memory", True),
        (1, "RuntimeError: CUDA error: uncorrectable ECC error encountered", False),
        (1, "OSError: [Errno 5] Input/output error", False),
        (-11, "", False),
        (-9, "", False),
    ],
)
def test_an_exception_is_the_script_s_unless_it_speaks_of_hardware(
    exit_code: int, message: str, is_own: bool
) -> None:
    assert is_of_script(Exit(0, 0, 1, exit_code, 0.0, 0, message)) == is_own


def test_a_job_is_stuck_when_no_attempt_came_further_than_the_first() -> None:
    def stuck(*steps: int, limit: int = 3, **last: object) -> bool:
        row = [failure(number, step_reached=step) for number, step in enumerate(steps)]
        return is_stuck(dataclasses.replace(row[-1], **last), row[:-1], limit)  # type: ignore[arg-type]

    assert stuck(500, 480, 500)
    assert stuck(10, 500, 500, 500)
    assert not stuck(500, 500)
    assert not stuck(500, 501, 500)
    assert not stuck(10, 20, 30)
    assert not stuck(500, 500, 500, onset_step=400)
    assert not stuck(500, 500, 500, limit=4)
    assert not stuck(500, 500, 500, cause="node_lost")
    assert not stuck(500, 500, 500, evidence=["was killed by the kernel's OOM killer"])


def test_steps_that_are_made_again_on_purpose_don_t_make_a_job_stuck() -> None:
    back = failure(1, step_reached=500, distrusts_from=400, escalation=ROLL_BACK)
    row = [back, failure(2, step_reached=90), failure(3, step_reached=95)]
    assert not is_stuck(row[-1], row[:-1], 3)


def test_a_planned_restart_between_failures_says_nothing() -> None:
    row = [
        failure(1, step_reached=500),
        failure(2, step_reached=600, cause="grow"),
        failure(3, step_reached=500),
        failure(4, step_reached=500),
    ]
    assert is_stuck(row[-1], row[:-1], 3)


def test_a_pause_is_longer_by_up_to_a_quarter_and_the_same_when_judged_again() -> None:
    pauses = {jittered(8.0, f"incident {number}") for number in range(200)}
    assert len(pauses) > 150
    assert 8.0 <= min(pauses) < 8.2
    assert 8.0 * (1 + JITTER) - 0.2 < max(pauses) <= 8.0 * (1 + JITTER)
    assert jittered(8.0, "i") == jittered(8.0, "i")
    assert jittered(0.0, "i") == 0.0


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    return job


def crash_on(job: SimulatedJob, node: str, attempt: int, local_rank: int = 0) -> None:
    """A rank of this node is killed; its attempt and the next."""
    job.run_until(lambda: job.is_running(attempt))
    job.run(0.5)
    job.nodes[node].crash(local_rank, -9, job.now)
    job.run_until(lambda: job.is_running(attempt + 1))


def test_a_node_that_is_blamed_again_and_again_is_replaced_and_kept_outside(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    for attempt, local_rank in enumerate((0, 1, 0)):
        crash_on(job, "n1", attempt, local_rank)
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n2"]
    (kept_out,) = job.plan.outside
    assert (kept_out.node, kept_out.part) == ("n1", "machine-of-n1")
    assert kept_out.until_unix_s - kept_out.since_unix_s == 86400.0
    assert kept_out.evidence[0] == "3 failures within 2 s are blamed on it"
    last = job.incidents()[-1]
    assert last.escalation == WITHOUT_NODE
    assert "node n1 is kept outside from now on" in last.evidence[-1]
    assert [e for e in last.evidence if "kept outside" in e] == last.evidence[-1:]
    assert tell(last).how == "without the node"
    job.run(5)
    assert job.is_running(3)
    # It stays out as other failures come, too.
    crash_on(job, "n2", 3)
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n2"]


def test_a_node_that_comes_back_under_another_name_stays_outside(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    for attempt in range(3):
        crash_on(job, "n1", attempt)
    del job.nodes["n1"]
    job.add("again").machine = "machine-of-n1"
    job.nodes["n2"].dead = True
    job.run(10)
    assert job.plan is not None
    assert "again" not in {member.node for member in job.plan.members} or job.plan.outside == []


def test_the_minimum_of_nodes_always_stays(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2)
    for attempt in range(3):
        crash_on(job, "n1", attempt)
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n1"]
    assert job.plan.outside == []
    last = job.incidents()[-1]
    assert last.escalation == ""
    assert last.evidence[-1].startswith("would have kept node n1 outside (3 failures within 2 s")
    assert last.evidence[-1].endswith("but too few nodes would be left")


def test_when_nodes_run_short_the_oldest_quarantine_is_lifted(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    for attempt in range(3):
        crash_on(job, "n1", attempt)
    job.nodes["n2"].dead = True
    job.run_until(lambda: job.is_running(4))
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n1"]
    assert job.plan.outside == []


def test_a_quarantine_ends_and_the_node_is_a_spare_again(tmp_path: Path) -> None:
    policy = PolicySettings(quarantine_s=60.0)
    job = started(tmp_path, nodes=2, spares=1, policy=policy)
    for attempt in range(3):
        crash_on(job, "n1", attempt)
    assert job.plan is not None
    assert len(job.plan.outside) == 1
    job.run(61)
    assert job.plan.outside == []
    assert job.is_running(3)
    crash_on(job, "n2", 3)
    job.nodes["n2"].dead = True
    job.run_until(lambda: job.is_running(5))
    assert [member.node for member in job.plan.members] == ["n0", "n1"]


@pytest.mark.parametrize(
    "options",
    [{"modes": ModeSettings(quarantine="suggest")}, {"mode": "observe"}],
    ids=["suggested", "observed"],
)
def test_where_it_may_not_be_kept_outside_it_is_said_that_it_would_have_been(
    tmp_path: Path, options: dict[str, object]
) -> None:
    job = started(tmp_path, nodes=2, spares=1, **options)
    for attempt in range(3):
        crash_on(job, "n1", attempt)
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n1"]
    line = job.incidents()[-1].evidence[-1]
    assert line.startswith("would have kept node n1 outside")
    assert "but the mode is" in line


def test_a_script_s_own_exceptions_drive_no_node_out(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    for attempt in range(4):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        job.run(0.3 + attempt)
        job.nodes["n1"].crash(0, 1, job.now, "ValueError: another one")
        job.run_until(lambda: job.is_running(attempt + 1))  # noqa: B023
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n1"]


def with_checkpoints(job: SimulatedJob, *, good: int, newest: int) -> None:
    for step, verdict in ((good, "good"), (newest, "complete")):
        entry = LedgerEntry(f"c{step}", f"/c/{step}", step, 0, 1, "", verdict, 1, 4, job.now)
        job.storage.held[entry.identifier] = entry


def die_straight_away(job: SimulatedJob, attempt: int, rank: int) -> None:
    """Every attempt dies at the same step; another rank is to blame each time."""
    job.run_until(lambda: job.is_running(attempt))
    while any(int(node.step) < 120 for node in job.nodes.values() if node.state == "running"):
        job.tick()
    job.nodes[f"n{rank // 2}"].crash(rank % 2, -11, job.now)


def test_attempts_that_die_without_a_new_step_send_the_job_further_back_and_then_end_it(
    tmp_path: Path,
) -> None:
    policy = PolicySettings(same_signature_limit=99, backoff_s=0.1, backoff_limit_s=0.1)
    job = SimulatedJob(tmp_path, registered=True, policy=policy)
    with_checkpoints(job, good=50, newest=100)
    for attempt, rank in enumerate((0, 1, 2)):
        die_straight_away(job, attempt, rank)
    job.run_until(lambda: job.is_running(3))
    assert [node.resumed for node in job.nodes.values()] == [50, 50]
    assert job.storage.poisoned == {"c100"}
    third = job.incidents()[2]
    assert (third.escalation, third.distrusts_from) == (ROLL_BACK, 100)
    assert "back behind step 100, from which they resumed" in third.evidence[-1]
    for attempt, rank in ((3, 3), (4, 0), (5, 1)):
        die_straight_away(job, attempt, rank)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert {n.exit_code for n in job.nodes.values()} == {EXIT_DO_NOT_REQUEUE}
    assert job.plan is not None
    assert "though the job had gone back further" in job.plan.message
    assert job.plan.attempt == 5


def test_without_a_good_checkpoint_before_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    policy = PolicySettings(same_signature_limit=99, backoff_s=0.1, backoff_limit_s=0.1, budget=4)
    job = SimulatedJob(tmp_path, registered=True, policy=policy)
    with_checkpoints(job, good=100, newest=110)
    job.storage.held["c110"] = dataclasses.replace(job.storage.held["c110"], verdict="poisoned")
    job.storage.poisoned.add("c110")
    for attempt, rank in enumerate((0, 1, 2, 3, 0)):
        die_straight_away(job, attempt, rank)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert {n.exit_code for n in job.nodes.values()} == {1}
    assert {i.escalation for i in job.incidents()} == {""}


def test_judging_again_what_was_noted_and_not_carried_out_comes_to_the_same() -> None:
    """A leader may die, or its plan be refused, after it wrote down what it decided."""
    agents = {
        node: AgentReport(node, "i", "joining", 2, 1, 1, "", 2, 2, machine=f"m-{node}")
        for node in ("n0", "n1", "n2")
    }
    plan = Plan(3, 1, "ended", [Member("n0", "i", 0, 0, 1), Member("n1", "i", 1, 1, 1)])
    earlier = [failure(attempt, "m-n1", culprit_node="n1") for attempt in (1, 2)]
    now_blamed = failure(3, "m-n1", culprit_node="n1", cause="hang", decided="")

    def judge(incident: Incident) -> Way:
        known = {one.identifier: one for one in (*earlier, incident)}
        cluster = Cluster(agents=agents, plan=plan, incidents=known)
        way = find_way(cluster, plan, incident, Settings(), -1, NOW)
        assert isinstance(way, Way)
        return way

    first = judge(now_blamed)
    assert [one.part for one in first.outside] == ["m-n1"]
    noted = dataclasses.replace(first.incident, decided="restart")
    assert judge(noted) == dataclasses.replace(first, incident=noted)
