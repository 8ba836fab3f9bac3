"""Planned work: pause, resume and restart through the real leader, in simulated time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.records.plan import WITHHELD


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    return job


def paused(tmp_path: Path, for_s: float = 60.0, **options: object) -> SimulatedJob:
    job = started(tmp_path, **options)
    job.ask("p", "pause", reason="new switch", for_s=for_s)
    job.run_until(lambda: job.plan is not None and job.plan.pause is not None)
    return job


def test_a_pause_is_told_to_everybody_and_answers_its_request(tmp_path: Path) -> None:
    job = paused(tmp_path)
    job.run(1)
    assert job.requests() == {}
    for node in job.nodes.values():
        plan = node.coordinator.orders().plan
        assert plan is not None
        assert plan.pause is not None
        assert (plan.pause.by, plan.pause.reason) == ("ann@desk", "new switch")
        assert plan.pause.until_unix_s == pytest.approx(job.now + 60, abs=2)
    assert job.is_running(0)


@pytest.mark.parametrize("fault", ["hang", "crash", "lost node"])
def test_nothing_is_done_about_a_fault_until_the_pause_is_over(tmp_path: Path, fault: str) -> None:
    job = paused(tmp_path, for_s=20.0, nodes=2, spares=1)
    broken = job.nodes["n1"]
    if fault == "hang":
        broken.frozen = {0}
    elif fault == "crash":
        broken.crash(0, -9, job.now)
    else:
        broken.dead = True
    job.run(15)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "running")
    assert [i for i in job.incidents() if i.decided not in WITHHELD] == []
    job.run_until(lambda: job.is_running(1))
    assert job.plan.pause is None


def test_what_is_over_within_the_pause_was_never_acted_on_and_is_on_record(tmp_path: Path) -> None:
    job = paused(tmp_path)
    job.nodes["n1"].frozen = {0}
    job.run(12)
    job.nodes["n1"].frozen = set()
    job.run(2)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided, incident.culprit_ranks) == ("hang", "paused", [2])
    assert incident.recovered_unix_s - incident.detected_unix_s == pytest.approx(12, abs=0.5)
    assert "would have restarted the job, but it is paused" in incident.evidence
    assert job.is_running(0)


def test_what_outlives_the_pause_is_one_incident_of_the_whole(tmp_path: Path) -> None:
    job = paused(tmp_path, for_s=20.0)
    job.nodes["n1"].frozen = {0}
    job.run_until(lambda: len(job.incidents()) == 1)
    (seen,) = job.incidents()
    job.run_until(lambda: job.is_running(1))
    job.run(1)
    (incident,) = job.incidents()
    assert incident.identifier == seen.identifier
    assert (incident.cause, incident.decided, incident.culprit_ranks) == ("hang", "restart", [2])
    assert incident.since_unix_s == seen.since_unix_s
    assert incident.withheld == "paused", "what was counted as withheld stays so"
    assert incident.recovered_unix_s > incident.ended_unix_s > seen.detected_unix_s + 15
    assert any("nothing was done, as the job was paused" in told for told in incident.evidence)
    assert sorted(incident.kept_by) == ["n0", "n1"]


def test_a_rank_that_dies_of_the_planned_work_is_no_second_incident(tmp_path: Path) -> None:
    job = paused(tmp_path, for_s=20.0)
    job.nodes["n1"].frozen = {0}
    job.run(5)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    job.run(1)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("crash", "restart")


def test_what_planned_work_stops_on_its_way_is_one_incident(tmp_path: Path) -> None:
    job = paused(tmp_path, for_s=600.0)
    for name in ("n0", "n1", "n0"):
        job.nodes[name].frozen = {0}
        job.run(5)
        job.nodes[name].frozen = set()
        job.run(90)
    (incident,) = job.incidents()
    assert (incident.decided, incident.culprit_ranks) == ("paused", [0, 2])
    assert sum(reason.startswith("then: ") for reason in incident.evidence) == 1
    assert incident.recovered_unix_s > 0


def test_resume_ends_it_and_what_waited_is_done(tmp_path: Path) -> None:
    job = paused(tmp_path, for_s=3600.0)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run(5)
    told = [node.coordinator.waiting for node in job.nodes.values()]
    assert "paused by ann@desk (new switch)" in told
    job.ask("r", "resume")
    job.run_until(lambda: job.is_running(1))
    assert job.requests() == {}


def test_an_attempt_that_had_ended_before_is_not_opened_either(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.ask("p", "pause", for_s=3600.0)
    job.run(1000)  # much longer than the patience with nodes that don't come back
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "ended")
    job.ask("r", "resume")
    job.run_until(lambda: job.is_running(1))


def test_a_pause_outlives_its_leader_and_an_emptied_server(tmp_path: Path) -> None:
    job = paused(tmp_path, nodes=2, spares=1)
    job.run(0.5)
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    job.server.empty()
    del job.nodes[leader.name]
    job.run(3)
    assert job.plan is not None
    assert job.plan.pause is not None
    assert (job.plan.attempt, job.plan.state) == (0, "running")
    job.ask("r", "resume")
    job.run_until(lambda: job.is_running(1))


def test_a_scheduler_and_a_stop_don_t_wait_for_the_end_of_a_pause(tmp_path: Path) -> None:
    job = paused(tmp_path / "a", for_s=3600.0)
    for node in job.nodes.values():
        node.preempt(job.now)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert {n.exit_code for n in job.nodes.values()} == {75}
    job = paused(tmp_path / "b", for_s=3600.0)
    job.ask("s", "stop")
    job.run_until(lambda: all(n.exit_code == 0 for n in job.nodes.values()))


def test_a_wished_restart_uses_no_budget_and_is_met_once(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.ask("w", "restart", reason="new data")
    job.run_until(lambda: job.is_running(1))
    job.run(10)
    assert job.is_running(1)
    (incident,) = job.incidents()
    assert (incident.identifier, incident.cause) == ("w", "restart")
    assert incident.evidence == ["asked for by ann@desk: new data"]
    assert incident.recovered_unix_s > 0
    assert job.plan is not None
    assert job.plan.restarts == 0
    assert job.requests() == {}


def test_a_wish_that_was_met_and_is_still_there_is_not_met_again(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.ask("w", "restart")
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.run_until(lambda: job.is_running(1))
    job.ask("w", "restart")  # as if its leader had died before it took the wish away
    job.run(3)
    assert job.is_running(1)
    assert job.requests() == {}


def test_a_job_that_is_being_restarted_anyway_has_met_the_wish(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.ask("w", "restart")
    job.run_until(lambda: job.is_running(1))
    job.run(3)
    assert job.is_running(1)
    assert [i.cause for i in job.incidents()] == ["crash"]
    assert job.requests() == {}


def test_a_restart_without_a_node_leaves_it_out_until_it_is_let_in(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.ask("w", "restart", node="n1")
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    assert [m.node for m in job.plan.members] == ["n0", "n2"]
    assert [(q.node, q.part) for q in job.plan.outside] == [("n1", "machine-of-n1")]
    job.ask("w2", "restart", node="n2")
    job.run(3)
    assert job.is_running(1)
    assert "too few are left: 1" in job.requests()["w2"].refused
    job.ask("l", "resume", node="n1")
    job.run(1)
    assert job.plan.outside == []
    job.ask("w3", "restart", node="n2")
    job.run_until(lambda: job.is_running(2))
    assert [m.node for m in job.plan.members] == ["n0", "n1"]


def test_a_node_that_is_not_in_the_attempt_can_t_be_left_out(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.ask("w", "restart", node="n7")
    job.run(1)
    assert job.requests()["w"].refused == "node n7 is not in attempt 0 (in it: n0, n1)"
    assert job.is_running(0)


def test_a_hang_that_is_left_to_people_keeps_its_evidence_before_their_restart(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, mode="suggest")
    job.nodes["n1"].frozen = {0}
    job.run(3)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "running")
    job.ask("w", "restart")
    job.run_until(lambda: job.is_running(1))
    wish = next(i for i in job.incidents() if i.cause == "restart")
    assert sorted(wish.kept_by) == ["n0", "n1"]
    hang = next(i for i in job.incidents() if i.cause == "hang")
    assert (hang.decided, hang.recovered_unix_s) == ("suggest", 0.0)
    assert hang.ended_unix_s > 0


def test_pausing_again_replaces_the_end_and_the_reason(tmp_path: Path) -> None:
    job = paused(tmp_path, for_s=10.0)
    job.ask("q", "pause", reason="longer", for_s=100.0)
    job.run(30)
    assert job.plan is not None
    assert job.plan.pause is not None
    assert job.plan.pause.reason == "longer"


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_no_attempt_ends_or_begins_in_a_pause(tmp_path: Path, seed: int) -> None:
    job = started(tmp_path, nodes=2, spares=1, seed=seed)
    chance, number = random.Random(seed), 0
    before = job.plan
    for _ in range(400):
        if chance.random() < 0.02:
            number += 1
            kind = chance.choice(["pause", "resume"])
            job.ask(f"w{number}", kind, for_s=chance.choice([3.0, 1000.0]))
        if chance.random() < 0.01:
            victim = job.nodes[chance.choice(["n0", "n1", "n2"])]
            victim.crash(0, -9, job.now)
        if chance.random() < 0.01:
            job.nodes["n1"].frozen ^= {0}
        if chance.random() < 0.005:
            job.server.empty()
        job.tick()
        now = job.plan
        if before is not None and now is not None and before.pause is not None and now.pause:
            assert (now.attempt, now.state) == (before.attempt, before.state)
        before = now or before
    job.nodes["n1"].frozen = set()
    job.ask("last", "resume")

    def goes_on() -> bool:
        plan = job.plan
        return plan is not None and plan.pause is None and job.is_running(plan.attempt)

    job.run_until(goes_on, 200.0)
