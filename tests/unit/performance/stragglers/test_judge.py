from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.simulated_job import SimulatedJob
from tests.unit.performance.stragglers.simulated import EIGHT

from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.steps import SlowCause, SlownessReport

ONSET = 41
STEP_S = 0.92


def watch(
    scenario: Scenario,
    steps: int,
    judge: Judge | None = None,
    attempt: int = 0,
    findings: Sequence[Finding] = (),
) -> dict[int, SlownessReport]:
    """Step -> how the job stands then."""
    judge = judge or Judge()
    job = SimulatedJob(scenario)
    places, told = job.places(), {}
    for step, lines in enumerate(job.steps(steps), start=1):
        moment = Moment(step * STEP_S, 1e9 + step * STEP_S, "node0")
        standing = judge.follow(lines, places, {}, findings, attempt, moment)
        if standing is not None:
            told[standing.step] = standing
    return told


def fault(cause: SlowCause, *ranks: int, slowdown: float = 0.3, until: int = 1 << 30) -> Scenario:
    return Scenario(7, EIGHT, faults=(Fault(cause, ranks, slowdown, ONSET, until),))


def truly_gained(told: dict[int, SlownessReport], until: int) -> float:
    """What the job would gain, by what its steps took before it became slow."""
    lasted = [b.watched_s - a.watched_s for a, b in pairwise(told.values()) if b.step <= until]
    after = until - ONSET + 1
    return statistics.median(lasted[-after:]) / statistics.median(lasted[:-after]) - 1


def test_who_why_since_when_and_at_what_cost() -> None:
    told = watch(fault(SlowCause.CPU_QUOTA, 3), ONSET + 30)
    (slow,) = told[ONSET + 30].slow
    assert (slow.ranks, slow.node, slow.cause) == ([3], "node0", SlowCause.CPU_QUOTA)
    assert abs(slow.slowdown - 0.3) < 0.05
    assert abs(slow.since_step - ONSET) <= 2
    assert slow.gain == pytest.approx(truly_gained(told, ONSET + 30), abs=0.03)
    assert any("quota" in text for text in slow.evidence)
    assert slow.advice
    standing = told[ONSET + 30]
    assert standing.lost_s["cpu_quota"] == pytest.approx(slow.lost_s, abs=0.01)
    assert standing.lost_by_rank["3 on node0"] == pytest.approx(slow.lost_s, abs=0.01)
    assert {one.what: one.gain for one in standing.what_ifs} == {"rank 3": slow.gain}
    # All that was lost since it began, also while nobody knew of it.
    steps_s = standing.watched_s - told[ONSET - 1].watched_s
    truth = steps_s * (1 - 1 / (1 + truly_gained(told, ONSET + 30)))
    assert slow.lost_s == pytest.approx(truth, rel=0.1)


def test_a_healthy_job_is_called_slow_by_nobody() -> None:
    told = watch(Scenario(5, Layout(4, 2, 2), sigma=0.04, evaluates_every=25), 300)
    assert not any(standing.slow for standing in told.values())
    newest = told[max(told)]
    assert newest.lost_s == {}
    assert newest.watched_s > 200
    assert newest.judged_ranks == 16


def test_what_has_passed_is_told_no_more_and_stays_in_the_sum() -> None:
    until = ONSET + 30
    told = watch(fault(SlowCause.DATA_LOADING, 2, until=until), until + 30)
    assert told[until - 1].slow
    newest = told[max(told)]
    assert newest.slow == []
    assert newest.lost_s["data_loading"] > 3
    later = {step: one.lost_s for step, one in told.items() if step > until + 20}
    assert len({str(lost) for lost in later.values()}) == 1


def test_a_new_attempt_begins_anew_and_keeps_the_sums() -> None:
    judge = Judge()
    first = watch(fault(SlowCause.COMPUTE, 3), ONSET + 30, judge)
    lost = first[max(first)].lost_s["compute"]
    second = watch(Scenario(8, EIGHT), 20, judge, attempt=1)
    newest = second[max(second)]
    assert newest.slow == []
    assert newest.attempt == 1
    assert newest.lost_s["compute"] == pytest.approx(lost, abs=0.001)
    assert newest.watched_s > first[max(first)].watched_s


def test_nothing_is_told_of_an_attempt_before_its_first_steps() -> None:
    judge = Judge()
    watch(Scenario(8, EIGHT), 20, judge)
    assert judge.follow([], {}, {}, [], 1, Moment(99.0, 1e9, "a")) is None


def test_a_new_leader_takes_over_the_sums() -> None:
    told = watch(fault(SlowCause.COMPUTE, 3), ONSET + 30)
    before = told[max(told)]
    judge = Judge()
    judge.resume(before)
    after = watch(Scenario(9, EIGHT), 20, judge)
    newest = after[max(after)]
    assert newest.lost_s == before.lost_s
    assert newest.watched_s > before.watched_s


def test_ranks_of_a_host_that_is_short_of_cores_are_one_trouble() -> None:
    layout = Layout(dp=16, ranks_per_node=4)
    scenario = Scenario(
        3, layout, faults=(Fault(SlowCause.CPU_CONTENTION, (4, 5, 6, 7), 0.4, ONSET),)
    )
    told = watch(scenario, ONSET + 25)
    (slow,) = told[ONSET + 25].slow
    assert slow.ranks == [4, 5, 6, 7]
    assert slow.node == "node1"
    assert slow.gain > 0.2


def test_a_slow_link_of_one_world_wide_group_names_the_link_and_nobody() -> None:
    scenario = Scenario(4, EIGHT, faults=(Fault(SlowCause.LINK, (0, 1), 0.4, ONSET),))
    told = watch(Scenario(4, Layout(8, ranks_per_node=2), faults=scenario.faults), ONSET + 25)
    (slow,) = told[ONSET + 25].slow
    assert (slow.cause, slow.node, slow.ranks) == (SlowCause.LINK, "", list(range(8)))
    assert slow.group == "mesh_dp"
    assert slow.part == "communicating"


def test_a_stage_with_more_to_do_is_a_pipeline_out_of_balance() -> None:
    layout = Layout(dp=4, pp=2)
    stage = tuple(range(4, 8))
    told = watch(Scenario(4, layout, faults=(Fault(SlowCause.PIPELINE, stage, 0.4, 1),)), 40)
    (slow,) = told[40].slow
    assert (slow.cause, slow.ranks, slow.role) == (SlowCause.PIPELINE, list(stage), "stage 1")
    assert {one.what for one in told[40].what_ifs} == {"stage 1", "even stages"}
    assert told[40].lost_by_rank == {}


def test_more_work_than_others_is_uneven_work_and_no_slow_rank() -> None:
    told = watch(fault(SlowCause.UNEVEN_WORK, 5, slowdown=0.4), ONSET + 40)
    (slow,) = told[ONSET + 40].slow
    assert slow.cause is SlowCause.UNEVEN_WORK
    assert abs(slow.slowdown - 0.4) < 0.1


def test_a_cause_stays_what_it_was_found_to_be() -> None:
    told = watch(fault(SlowCause.STORAGE, *range(4)), ONSET + 60)
    causes = [one.cause for standing in told.values() for one in standing.slow]
    assert causes
    assert set(causes) == {SlowCause.STORAGE}


def test_one_rank_alone_is_not_judged_and_it_says_why() -> None:
    told = watch(Scenario(3, Layout(dp=1)), 30)
    newest = told[max(told)]
    assert newest.slow == []
    assert any("nobody" in text for text in newest.unjudged)


@pytest.mark.parametrize("peers", [2, 8])
def test_a_moment_without_its_lines_takes_nothing_of_what_a_slow_rank_lost(peers: int) -> None:
    """As while it is traced, or makes a checkpoint."""
    scenario = Scenario(7, Layout(dp=peers), faults=(Fault(SlowCause.COMPUTE, (1,), 0.5, ONSET),))
    judge, job = Judge(), SimulatedJob(scenario)
    lost, since = [], set()
    for step, lines in enumerate(job.steps(140), start=1):
        if 100 <= step < 110:
            lines = [one._replace(steps=0) if one.rank == 1 else one for one in lines]
        moment = Moment(step * STEP_S, 1e9 + step * STEP_S, "node0")
        standing = judge.follow(lines, job.places(), {}, (), 0, moment)
        for one in standing.slow if standing is not None else ():
            lost.append(one.lost_s)
            since.add(one.since_step)
    assert len(since) == 1
    assert lost == sorted(lost)
    assert standing is not None
    assert standing.lost_s["compute"] == pytest.approx(lost[-1], abs=0.001)


def test_two_slow_ranks_are_charged_together_what_they_lost_together() -> None:
    faults = (
        Fault(SlowCause.COMPUTE, (3,), 0.5, ONSET),
        Fault(SlowCause.DATA_LOADING, (6,), 0.5, ONSET),
    )
    told = watch(Scenario(7, EIGHT, faults=faults), ONSET + 40)
    newest = told[ONSET + 40]
    assert {tuple(one.ranks) for one in newest.slow} == {(3,), (6,)}
    steps_s = newest.watched_s - told[ONSET - 1].watched_s
    truth = steps_s * (1 - 1 / (1 + truly_gained(told, ONSET + 40)))
    assert sum(newest.lost_s.values()) == pytest.approx(truth, rel=0.12)
    first, second = (one.lost_s for one in newest.slow)
    assert first == pytest.approx(second, rel=0.3)


@pytest.mark.parametrize("who_tells", [{0}, {2}, {2, 3}])
def test_who_is_slow_stays_so_in_a_frame_of_which_its_role_tells_nothing(
    who_tells: set[int],
) -> None:
    """Two roles of two ranks each: rank 1 is slow, and steps 80 to 84 are traced or saved."""
    scenario = Scenario(7, Layout(dp=2, pp=2), faults=(Fault(SlowCause.COMPUTE, (1,), 0.5, 1),))
    judge, job = Judge(), SimulatedJob(scenario)
    slow = {}
    for step, lines in enumerate(job.steps(90), start=1):
        if 80 <= step < 85:
            lines = [one if one.rank in who_tells else one._replace(steps=0) for one in lines]
        moment = Moment(step * STEP_S, 1e9 + step * STEP_S, "node0")
        standing = judge.follow(lines, job.places(), {}, (), 0, moment)
        if standing is not None:
            slow[standing.step] = [one.ranks for one in standing.slow]
    assert {tuple(map(tuple, slow[step])) for step in range(78, 91)} == {((1,),)}
