"""When an event's moment has come, and what is told, from the job's records alone."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.cli.demonstration import verdict
from holdfast_sidecar.cli.demonstration.job import Event, FaultKind, scenario
from holdfast_sidecar.cli.demonstration.verdict import Injected
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry, SnapshotReport
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

MEMBERS = [Member("a", "a1", 0, 0, 2), Member("b", "b1", 1, 2, 2)]
PLAN = Plan(attempt=1, epoch=1, state="running", members=MEMBERS, world_size=4)


def rank(number: int, step: int) -> RankReport:
    return RankReport(number, number % 2, 100, step, "forward", 0.0, 0.05, 0.02, resumed_step=40)


def node(name: str, *ranks: RankReport) -> NodeReport:
    return NodeReport(name, f"{name}1", 1, 1, 1, 1, launcher_alive=True, ranks=list(ranks))


def cluster(*steps: int, plan: Plan = PLAN) -> Cluster:
    ranks = [rank(number, step) for number, step in enumerate(steps)]
    return Cluster(nodes={"a": node("a", *ranks[:2]), "b": node("b", *ranks[2:])}, plan=plan)


def test_the_job_is_as_far_as_its_slowest_rank() -> None:
    assert verdict.stepping(cluster(62, 61, 61, 62)) == 61


def test_nothing_is_done_to_a_job_whose_ranks_have_not_all_stepped_since_the_restart() -> None:
    assert verdict.stepping(cluster(41, 41, 41, 40)) is None


def test_nothing_is_done_to_a_job_that_misses_a_rank_or_is_ending() -> None:
    ending = dataclasses.replace(PLAN, state="ended")
    assert verdict.stepping(cluster(61, 61, 61)) is None
    assert verdict.stepping(cluster(61, 61, 61, 61, plan=ending)) is None


def test_a_fault_waits_for_work_that_this_attempt_has_kept() -> None:
    job = cluster(61, 61, 61, 61)
    entry = LedgerEntry("s1", "", 40, 1, 1, "", "complete", 10, 4, 0.0)
    assert not verdict.has_kept_work(job)
    assert verdict.has_kept_work(dataclasses.replace(job, ledger={"s1": entry}))
    assert not verdict.has_kept_work(with_snapshot(job, 40))
    assert verdict.has_kept_work(with_snapshot(job, 60))


def with_snapshot(job: Cluster, newest: int) -> Cluster:
    assert job.plan is not None
    report = SnapshotReport(job.plan.attempt, 3, True, newest=newest)
    nodes = {name: dataclasses.replace(n, snapshot=report) for name, n in job.nodes.items()}
    return dataclasses.replace(job, nodes=nodes)


def test_a_rank_is_found_on_its_node() -> None:
    job = cluster(61, 61, 61, 61)
    assert [verdict.node_of(job, number) for number in (0, 1, 2, 3, 4)] == ["a", "a", "b", "b", ""]


def test_an_incident_of_another_attempt_is_not_taken_for_the_answer() -> None:
    injected = Injected(Event(FaultKind.KILL_RANK, 60, 3), "b", 61, attempt=1, at_unix_s=0.0)
    older = Incident("i0", attempt=0, cause="crash")
    mine = Incident("i1", attempt=1, cause="crash")
    job = Cluster(incidents={"i0": older})
    assert verdict.incident_of(job, injected) is None
    assert verdict.incident_of(Cluster(incidents={"i0": older, "i1": mine}), injected) == mine


def test_the_checkpoint_is_the_one_that_the_command_got_not_a_scheduled_one() -> None:
    scheduled = LedgerEntry("s1", "", 160, 1, 1, "", "complete", 10, 4, 0.0)
    asked = LedgerEntry("s2", "", 201, 1, 1, "", "complete", 10, 4, 0.0)
    job = Cluster(ledger={"s1": scheduled, "s2": asked})
    assert verdict.save_of(job, '{"identifier": "s2", "reason": ""}') == asked
    assert verdict.save_of(job, '{"identifier": "s2", "reason": "late"}') == "late"
    assert verdict.save_of(job, '{"identifier": "s3", "reason": ""}') == "s3 is not in the ledger"
    assert verdict.save_of(job, "holdfast: no such job") == "it answered 'holdfast: no such job'"
    assert verdict.save_of(job, "") == "it did not answer"


def test_news_are_told_once() -> None:
    before = cluster(61, 61, 61, 61)
    incident = Incident("i1", 1, "crash", "b", [3], detected_unix_s=10.0)
    noticed = dataclasses.replace(before, incidents={"i1": incident})
    recovered = dataclasses.replace(
        before,
        incidents={
            "i1": dataclasses.replace(
                incident, recovered_unix_s=14.0, step_reached=62, step_resumed=40
            )
        },
    )

    assert verdict.news(before, noticed) == ["noticed: crash, rank 3 on b"]
    assert verdict.news(noticed, noticed) == []
    lost = dataclasses.replace(incident, cause="node_lost", culprit_ranks=[2, 3])
    judged = dataclasses.replace(before, incidents={"i1": lost})
    assert verdict.news(noticed, judged) == ["to blame: node_lost, ranks 2, 3 on b"]
    assert verdict.news(noticed, recovered) == [
        "every rank steps again 4.0 s later, 22 steps are done again"
    ]


def test_the_picture_names_every_rank_and_the_spare() -> None:
    job = cluster(61, 61, 61, 61)
    shown = verdict.progress(job, "with faults", 280)
    assert (shown.step, shown.steps) == (61, 280)
    text = "\n".join(shown.details)
    assert [f"rank {number}: step 61" in text for number in range(4)] == [True] * 4


def test_the_scenario_leaves_room_for_a_checkpoint_between_two_faults() -> None:
    played = scenario()
    steps = [event.at_step for event in played.events]
    assert steps == sorted(steps)
    assert steps[-1] < played.steps
    assert {event.kind for event in played.events} == set(FaultKind)
