from __future__ import annotations

import random
from typing import Any

import pytest
from bench.benchmark import Sample
from bench.figures import NOT_RUN, Figure
from bench.launch.goals import figures
from bench.launch.hooks_paired import judge

WAYS = {"Holdfast": 1.0, "torchrun": 9.0, "torchrun, own store": 4.0, "NVRx": 5.0}


def fault(
    row: str, contestant: str, back_s: float | None, job: str = "adamw", **more: Any
) -> Sample:
    return {
        "row": row,
        "contestant": contestant,
        "job": job,
        "recovered": back_s is not None,
        "every_rank_stepping_s": back_s,
        "first_new_process_s": None if back_s is None else back_s / 2,
        "detected_s": 0.1,
        "step_s": 0.05,
        **more,
    }


def named(samples: list[Sample], start: str) -> Figure:
    (found,) = (figure for figure in figures(samples) if figure.name.startswith(start))
    return found


def test_without_samples_every_goal_is_not_run() -> None:
    goals = [figure for figure in figures([]) if figure.goal is not None]
    assert len(goals) == 15
    assert {figure.met for figure in goals} == {NOT_RUN}


def test_recovery_is_compared_with_the_faster_of_the_two_peers() -> None:
    samples = [fault("sigkill", name, back) for name, back in WAYS.items()]
    figure = named(samples, "SIGKILL of a rank, adamw: Holdfast /")
    assert figure.value == pytest.approx(1.0 / 4.0)
    assert figure.met is True


def test_the_sgd_job_has_a_goal_of_its_own() -> None:
    samples = [fault("sigkill", name, back, job="sgd") for name, back in WAYS.items()]
    samples += [fault("sigkill", "Holdfast", 3.5, job="sgd") for _ in range(5)]
    figure = named(samples, "SIGKILL of a rank, sgd: Holdfast /")
    assert figure.value == pytest.approx(3.5 / 4.0)
    assert figure.met is False
    assert named(samples, "SIGKILL of a rank, adamw: Holdfast /").met == NOT_RUN


def test_one_kill_without_recovery_misses_the_count() -> None:
    samples = [fault("sigkill", "Holdfast", 1.0) for _ in range(19)]
    assert named(samples, "SIGKILL of a rank: Holdfast recovered").met is True
    samples.append(fault("sigkill", "Holdfast", None))
    figure = named(samples, "SIGKILL of a rank: Holdfast recovered")
    assert (figure.value, figure.unit, figure.met) == (19, "of 20", False)


def test_a_missing_peer_leaves_the_ratio_not_run() -> None:
    samples = [fault("sigkill", name, back) for name, back in WAYS.items() if name != "NVRx"]
    assert named(samples, "SIGKILL of a rank, adamw: Holdfast /").met == NOT_RUN


def test_a_stopped_rank_must_be_declared_every_time_within_three_steps_and_a_second() -> None:
    early = [fault("sigstop", "Holdfast", 2.0, detected_s=1.1) for _ in range(4)]
    declared = "SIGSTOP of a rank: Holdfast, slowest declared after"
    assert named(early, declared).met is True
    late = fault("sigstop", "Holdfast", 2.0, detected_s=1.2)
    assert named([*early, late], declared).met is False
    never = fault("sigstop", "Holdfast", 2.0, detected_s=None)
    assert named([*early, never], declared).met is False


def test_recovery_from_a_stop_is_bounded_by_recovery_from_a_kill_in_the_same_run() -> None:
    back = "SIGSTOP of a rank: Holdfast, every rank stepping again after"
    killed = fault("sigkill", "Holdfast", 1.0)
    assert named([killed, fault("sigstop", "Holdfast", 2.3)], back).met is True
    assert named([killed, fault("sigstop", "Holdfast", 2.4)], back).met is False
    assert named([fault("sigstop", "Holdfast", 2.3)], back).met == NOT_RUN


@pytest.mark.parametrize(("row", "limit"), [("node-replaced", 0.3), ("node-shrunk", 0.15)])
def test_a_lost_node_is_compared_with_the_faster_torchrun(row: str, limit: float) -> None:
    peers = [fault(row, "torchrun", None), fault(row, "torchrun, own store", 40.0)]
    words = {"node-replaced": "lost node, replaced", "node-shrunk": "lost node, shrinking"}[row]
    for back_s, met in ((40.0 * limit, True), (40.0 * limit + 0.1, False)):
        figure = named([*peers, fault(row, "Holdfast", back_s)], f"{words}: Holdfast /")
        assert figure.met is met


def test_a_steady_difference_between_on_and_off_shows_in_the_interval() -> None:
    noise = random.Random(1)
    off = [round(noise.gauss(50_000, 1_000)) for _ in range(400)]
    same = [round(noise.gauss(50_000, 1_000)) for _ in range(400)]
    costly = judge([round(1.02 * value) for value in same], off)
    assert 1.0 < costly["lower_percent"] < 2.0 < costly["upper_percent"] < 3.0
    free = judge(same, off)
    assert free["lower_percent"] < 0.0 < free["upper_percent"] < 1.0


def test_a_job_that_never_stepped_misses_its_goals_rather_than_being_left_out() -> None:
    never: Sample = {
        "row": "sigstop",
        "contestant": "Holdfast",
        "job": "adamw",
        "recovered": False,
        "failed": "it did not start",
    }
    samples = [fault("sigkill", "Holdfast", 1.0), never]
    assert named(samples, "SIGSTOP of a rank: Holdfast, slowest").met is False
    assert named(samples, "SIGSTOP of a rank: Holdfast, every").met is False
    assert named(samples, "SIGSTOP of a rank, adamw, Holdfast: recovered").met is False
