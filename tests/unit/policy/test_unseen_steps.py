"""When a restart is over of which no step will ever tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import PolicySettings, Settings, StallSettings
from holdfast_sidecar.policy import budget, requeue
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.policy.requeue import recoveries, wait_s
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import NEVER_SEEN, Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.protocol import Section

MEMBERS = [Member("a", "ia", 0, 0, 1), Member("b", "ib", 1, 1, 1)]
PLAN = Plan(4, 8, "running", MEMBERS, 2, began_unix_s=50.0)
REOPENED_S = 100.0
BACK_S = REOPENED_S + wait_s(StallSettings())
CRASH = Incident(
    "i",
    3,
    "crash",
    "a",
    [0],
    since_unix_s=90.0,
    detected_unix_s=91.0,
    decided="restart",
    ended_unix_s=91.0,
    reopened_unix_s=REOPENED_S,
)
PAGE_AFTER_S = 900.0
"""As long HoldfastJobStuckRestarting waits."""


def rank(number: int, step: int = 0, phase: str = "starting", **given: Any) -> RankReport:
    return RankReport(number, 0, 9, step, phase, 0.0, 0.0, 0.0, **given)


UNSEEN = [rank(0), rank(1, phase="data")]


def job(
    ranks: list[RankReport] = UNSEEN,
    incidents: tuple[Incident, ...] = (CRASH,),
    account: dict[str, str] | None = None,
    findings: tuple[Finding, ...] = (),
    agents: str = "running",
) -> Cluster:
    """A restarted attempt of two nodes with a rank each; `ranks` are those that report."""
    texts = {one.identifier: encode(one) for one in incidents}
    return Cluster(
        agents={
            m.node: AgentReport(m.node, m.incarnation, agents, 4, 1, 1, "", 1, 2) for m in MEMBERS
        },
        nodes={
            m.node: NodeReport(
                m.node,
                m.incarnation,
                1,
                0,
                0,
                4,
                True,
                ranks=[one for one in ranks if one.rank == m.first_rank],
                findings=[one for one in findings if one.node == m.node],
            )
            for m in MEMBERS
        },
        plan=PLAN,
        plan_text=encode(PLAN),
        incidents={one.identifier: one for one in incidents},
        incident_texts=texts,
        account_fields=account or {},
    )


def at(now: float, **settings: Any) -> DecisionContext:
    return DecisionContext(8, now, now, Settings(**settings))


def recovered(cluster: Cluster, now: float) -> list[Incident]:
    """What is written of incidents by then."""
    writes = decide(cluster, at(now)).writes
    found = (decode(Incident, w.value or "") for w in writes if w.section is Section.INCIDENTS)
    return [one for one in found if one is not None]


@pytest.mark.parametrize("ranks", [UNSEEN, []], ids=["steps unseen", "without hooks"])
def test_it_is_over_once_every_rank_has_lived_on_for_long_enough(ranks: list[RankReport]) -> None:
    assert recovered(job(ranks), BACK_S - 1) == []
    (over,) = recovered(job(ranks), BACK_S)
    assert (over.recovered_unix_s, over.step_resumed) == (BACK_S, 0)
    assert over.evidence[-1].startswith("no step of this run was ever seen")


def test_that_is_sooner_than_somebody_is_paged_and_later_than_a_stall_is_told() -> None:
    assert StallSettings().first_step_s < BACK_S - REOPENED_S < PAGE_AFTER_S - 180


EARLIER = replace(CRASH, identifier="e", attempt=2, recovered_unix_s=95.0, step_reached=7)


@pytest.mark.parametrize(
    "seen",
    [
        job(incidents=(replace(CRASH, step_reached=2),)),
        job(incidents=(CRASH, EARLIER)),
        job(account={"at": "1", "s:productive": "1"}),
        job(account={"at": "1", "open": "pending"}),
        job([rank(0, in_loop=True), rank(1)]),
        job([rank(0, 40, resumed_step=40), rank(1)]),
        job([rank(0, 1), rank(1)]),
    ],
    ids=[
        "before it failed",
        "in an attempt before that",
        "as the account knows",
        "as the account is about to know",
        "soon: its loop is wrapped",
        "soon: it resumed",
        "on one of the ranks",
    ],
)
def test_who_was_seen_to_step_is_back_when_it_steps_again(seen: Cluster) -> None:
    assert recovered(seen, BACK_S + 1e6) == []


def test_steps_of_an_earlier_run_say_nothing_of_this_one() -> None:
    training = replace(EARLIER, detected_unix_s=40.0)
    assert [one.identifier for one in recovered(job(incidents=(CRASH, training)), BACK_S)] == ["i"]


@pytest.mark.parametrize(
    "starting",
    [
        job([rank(0)]),
        job([rank(0, phase="restoring"), rank(1)]),
        job([rank(0, phase="compiling"), rank(1)]),
        job([rank(0, alive=False, exit_code=-9), rank(1)]),
        job(agents="joining"),
        job(findings=(Finding(Kind.STALL, "b", 130.0, 0.6, [1], acts=True),)),
        job(findings=(Finding(Kind.STALL, "b", 130.0, 0.6, [1]),)),
        job(findings=(Finding(Kind.DATA_STALL, "b", 130.0, 0.6, [1]),)),
    ],
    ids=[
        "has no page",
        "loads",
        "compiles",
        "is dead",
        "is not started",
        "stands still",
        "is silent",
        "waits for data",
    ],
)
def test_it_is_not_over_while_a_rank(starting: Cluster) -> None:
    assert recoveries(starting, PLAN, at(BACK_S + 1e6)) == ()


def test_whoever_may_take_long_for_a_first_step_is_waited_for_as_long() -> None:
    patient = at(BACK_S, stall=StallSettings(first_step_s=1200.0))
    assert decide(job(), patient).writes == ()


def test_of_several_restarts_the_newest_counts_and_all_are_over() -> None:
    again = replace(CRASH, identifier="j", attempt=2, reopened_unix_s=95.0)
    twice = job(incidents=(again, CRASH))
    assert recovered(twice, BACK_S - 1) == []
    assert {one.identifier for one in recovered(twice, BACK_S)} == {"i", "j"}


def test_it_is_over_when_every_rank_has_ended_well_however_soon() -> None:
    ended = [replace(one, ending=1) for one in UNSEEN]
    (over,) = recovered(job(ended, agents="succeeded"), REOPENED_S + 5)
    assert over.recovered_unix_s == REOPENED_S + 5
    stepped = job(ended, (replace(CRASH, step_reached=2),), agents="succeeded")
    assert recovered(stepped, REOPENED_S + 5) == []


def test_a_job_whose_ranks_only_ever_wait_for_each_other_is_not_restarted_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process group gives up later than a restart counts as over where nothing is found."""
    monkeypatch.setattr(requeue, "START_S", 1.0)
    policy = PolicySettings(stepless_limit=4, backoff_s=0.1, backoff_limit_s=0.1)
    job = SimulatedJob(tmp_path, policy=policy)
    object.__setattr__(job.settings, "stall", StallSettings(first_step_s=2.0))
    job._train = lambda: None  # type: ignore[method-assign]
    for attempt in range(4):
        running_on(job, attempt)
        job.run(2)
        for node in job.nodes.values():
            node.ill = [Finding(Kind.STALL, node.name, job.now, 0.6, [0])]
        job.run(3)
        for node in job.nodes.values():
            node.crash(0, 1, job.now, f"RuntimeError: Timed out waiting {attempt}ms for recv")
        job.tick()
        for node in job.nodes.values():
            node.ill = []
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped", 10)
    assert job.plan is not None
    assert job.plan.exit_code == EXIT_DO_NOT_REQUEUE
    assert [one.recovered_unix_s for one in job.incidents()] == [0.0] * 4


def running_on(job: SimulatedJob, attempt: int) -> None:
    job.run_until(
        lambda: all((n.state, n.attempt) == ("running", attempt) for n in job.nodes.values())
    )


@pytest.mark.parametrize("cause", ["hang", "stall", "data_stall"])
def test_a_hang_before_any_step_counts_though_the_attempt_lived_for_long(cause: str) -> None:
    over = [f"{NEVER_SEEN}: over as every rank lived on for 700 s"]
    lived = [replace(CRASH, attempt=n, recovered_unix_s=99.0, evidence=over) for n in range(3)]
    hang = replace(CRASH, cause=cause, attempt=3)
    assert budget.failures_since_a_step(hang, lived) == 3
    assert budget.failures_since_a_step(replace(hang, cause="crash"), lived) == 0
