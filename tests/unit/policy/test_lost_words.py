"""What the leader makes of a store that forgot, and of launchers that have not heard yet."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import Decision, DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport

SEAT = Member("a", "i", 0, 0, 1)


def agent(state: str, attempt: int, **changes: object) -> AgentReport:
    report = AgentReport("a", "i", state, attempt, 1, 1, "", min_nodes=1, max_nodes=1)
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


def decided(plan: Plan, report: AgentReport, seen: Plan | None = None, **more: object) -> Decision:
    cluster = Cluster(agents={"a": report}, plan=plan, plan_text=encode(plan), **more)  # type: ignore[arg-type]
    return decide(cluster, DecisionContext(5, 100.0, 100.0, Settings(), seen, candidates=()))


def test_a_plan_that_a_failover_lost_is_given_back_from_whoever_obeyed_it() -> None:
    old, new = Plan(0, 1, "ended", [SEAT], 1), Plan(1, 2, "running", [SEAT], 1)
    (write,) = decided(old, agent("running", 1, plan=encode(new))).writes
    assert (write.value, write.expected) == (encode(new), encode(old))
    (write,) = decided(old, agent("running", 1), seen=new).writes
    assert write.value == encode(new)


def test_a_plan_that_was_obeyed_before_is_not_given_back() -> None:
    old, new = Plan(0, 2, "running", [SEAT], 1), Plan(1, 3, "running", [SEAT], 1)
    assert decided(new, agent("running", 1, plan=encode(old)), seen=old).writes == ()
    of_a_minority = Plan(2, 1, "running", [SEAT], 1)
    assert decided(new, agent("running", 1, plan=encode(of_a_minority))).writes == ()


def test_a_member_that_has_not_heard_of_the_stop_yet_begins_no_new_run() -> None:
    stopped = Plan(3, 1, "stopped", [SEAT], 1, exit_code=65)
    assert decided(stopped, agent("joining", 3)).writes == ()
    (write,) = decided(stopped, agent("joining", 3, incarnation="another launcher")).writes
    assert '"state":"running"' in str(write.value)


def test_an_incident_that_was_never_recorded_is_recorded_before_anything_is_done() -> None:
    """Its leader died between the two writes; a pause has to count from somewhere."""
    ended = Plan(3, 1, "ended", [SEAT], 1, incident="new", cause="crash")
    earlier = {
        name: Incident(name, 0, "crash", detected_unix_s=99.0, decided="restart") for name in "xyz"
    }
    (write,) = decided(ended, agent("joining", 3), incidents=earlier).writes
    assert (write.field, write.expected) == ("new", None)
    assert '"detected_unix_s":100.0' in str(write.value)


def test_a_server_that_was_away_for_longer_than_nodes_are_waited_for_ends_no_job(
    tmp_path: Path,
) -> None:
    job = SimulatedJob(tmp_path, policy=PolicySettings(join_timeout_s=5))
    job.run_until(lambda: job.plan is not None and job.plan.state == "running")
    job.run(1)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.server.pause()
    job.run(10)
    job.server.resume()
    job.run(5)
    assert job.plan is not None
    assert (job.plan.state, job.plan.attempt) == ("running", 1)


def test_a_launcher_slow_to_report_to_an_emptied_server_is_not_lost(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path)
    job.run_until(lambda: job.plan is not None and job.plan.state == "running")
    job.run(1)
    slow = job.nodes["n1"]
    job.server.empty()
    slow.starved = True
    job.run(3)
    slow.starved = False
    job.run(5)
    assert job.plan is not None
    assert (job.plan.state, job.plan.attempt) == ("running", 0)
    assert job.incidents() == []


def test_a_launcher_that_never_reports_to_an_emptied_server_is_lost_in_the_end(
    tmp_path: Path,
) -> None:
    job = SimulatedJob(tmp_path, spares=1)
    job.run_until(lambda: job.plan is not None and job.plan.state == "running")
    job.run(1)
    job.server.empty()
    job.nodes["n1"].starved = True
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    assert [incident.culprit_node for incident in job.incidents()] == ["n1"]


def test_an_emptied_server_gets_the_incident_back_as_it_is_on_disk(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].dead = True
    job.run_until(lambda: (plan := job.plan) is not None and plan.state == "ended")
    (told,) = job.incidents()
    assert told.confidence > 0.5
    for node in job.nodes.values():
        node.coordinator._leadership._recall = {told.identifier: told}.get
    job.run(20)
    job.server.empty()
    job.run_until(lambda: bool(job.incidents()))
    (again,) = job.incidents()
    assert again.confidence == told.confidence
    assert again.evidence == told.evidence
    assert again.since_unix_s == told.since_unix_s
    assert again.detected_unix_s == told.detected_unix_s
    assert again.ended_unix_s == told.ended_unix_s
