"""What is open, by the plan and by what the ranks do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.policy.pretend_job import PLAN, agent, cluster_of, rank_report

from holdfast_sidecar.performance.goodput.accounting import SETUP_S, stand
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import CLOSED, MICRO, PENDING, Account, Category
from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.plan import Incident, PauseWindow, Plan

RUN = "1000.000000"
TRAINING = Account(0, 0, PENDING, run=RUN, attempt=0, gpus=2, nodes=2)
PAUSED = PauseWindow("ann", "", 1.0, 9e9)
RESTARTED = replace(PLAN, attempt=1)
OPEN_INCIDENT = Incident(
    "i", 0, "crash", "a", [0], detected_unix_s=1005.0, ended_unix_s=1005.0, decided="restart"
)


def opened(cluster: Cluster, account: Account | None = None) -> tuple[str, str]:
    standing = stand(cluster, account)
    return standing.open, standing.stage


@pytest.mark.parametrize(
    ("ranks", "category"),
    [
        ((), Category.INIT),
        ((rank_report(0, phase="starting"),), Category.INIT),
        ((rank_report(0, phase="starting"), rank_report(1, phase="starting")), Category.SETUP),
        ((rank_report(0, phase="restoring"), rank_report(1, phase="starting")), Category.RESTORE),
        ((rank_report(0, in_loop=True), rank_report(1, in_loop=True)), Category.WARMUP),
        ((rank_report(0, phase="compiling"), rank_report(1)), Category.WARMUP),
        ((rank_report(0, 1), rank_report(1, 1)), PENDING),
        ((rank_report(0, 40, resumed_step=40), rank_report(1, 40, resumed_step=40)), "setup"),
        ((rank_report(0, 9, ending=1), rank_report(1, 9, ending=1)), Category.DRAINING),
        ((rank_report(0, phase="computing"), rank_report(1, phase="resting")), "unobserved"),
    ],
)
def test_a_first_attempt_goes_from_its_processes_start_to_its_steps(ranks, category) -> None:
    assert opened(cluster_of(PLAN, *ranks)) == (category, "")


def test_a_loop_whose_steps_can_not_be_seen_is_not_setup_for_ever() -> None:
    at_it = cluster_of(PLAN, rank_report(0, phase="starting"), rank_report(1, phase="starting"))
    young = replace(TRAINING, open="setup", micros={"setup": round(SETUP_S * MICRO) - 1})
    late = replace(young, micros={"setup": round(SETUP_S * MICRO)})
    assert opened(at_it, young) == (Category.SETUP, "")
    assert opened(at_it, late) == (Category.UNOBSERVED, "")
    stepping = cluster_of(PLAN, rank_report(0, 1), rank_report(1, 1))
    assert opened(stepping, late) == (PENDING, "")
    again = replace(late, micros={**late.micros, "productive": 1})
    assert opened(at_it, again) == (Category.SETUP, ""), "it is known to make steps"
    hookless = replace(TRAINING, open="init", micros={"init": round(SETUP_S * MICRO)})
    assert opened(cluster_of(PLAN), hookless) == (Category.UNOBSERVED, "")


def test_a_restart_whose_steps_can_not_be_seen_is_no_restart_for_ever() -> None:
    ranks = rank_report(0, phase="starting"), rank_report(1, phase="data")
    under_way = cluster_of(RESTARTED, *ranks, incidents=[OPEN_INCIDENT])
    late = replace(TRAINING, open="restart", micros={"setup": round(SETUP_S * MICRO)})
    assert opened(under_way, late) == (Category.UNOBSERVED, "i:first_step")
    one_came = cluster_of(RESTARTED, ranks[0], incidents=[OPEN_INCIDENT])
    assert opened(one_came, late) == (Category.RESTART, "i:rendezvous")
    young = replace(late, micros={"setup": round(SETUP_S * MICRO) - 1})
    assert opened(under_way, young) == (Category.RESTART, "i:rendezvous"), "a step may yet come"
    over = replace(OPEN_INCIDENT, recovered_unix_s=1700.0)
    at_work = cluster_of(RESTARTED, *ranks, incidents=[over])
    assert opened(at_work, late) == (Category.UNOBSERVED, "")
    assert opened(at_work, young) == (Category.SETUP, "")


def test_who_was_seen_to_step_is_restarting_until_it_steps_again() -> None:
    ranks = rank_report(0, phase="starting"), rank_report(1, phase="starting")
    late = replace(TRAINING, open="restart", micros={"setup": round(SETUP_S * MICRO)})
    stepped = replace(OPEN_INCIDENT, step_reached=2)  # before the account had split a step
    under_way = cluster_of(RESTARTED, *ranks, incidents=[stepped])
    assert opened(under_way, late) == (Category.RESTART, "i:rendezvous")
    under_way = cluster_of(RESTARTED, *ranks, incidents=[OPEN_INCIDENT])
    trained = replace(late, micros={**late.micros, "productive": 1})
    assert opened(under_way, trained) == (Category.RESTART, "i:rendezvous")


@pytest.mark.parametrize(
    ("ranks", "category", "stage"),
    [
        ((), Category.RESTART, "i:rendezvous"),
        ((rank_report(0, phase="starting"), rank_report(1)), Category.RESTART, "i:rendezvous"),
        ((rank_report(0, phase="restoring"), rank_report(1)), Category.RESTORE, "i:restore"),
        (
            (rank_report(0, 40, resumed_step=40), rank_report(1, 40, resumed_step=40)),
            Category.RESTART,
            "i:first_step",
        ),
    ],
)
def test_a_restart_lasts_until_its_incident_is_over(ranks, category, stage) -> None:
    under_way = cluster_of(RESTARTED, *ranks, incidents=[OPEN_INCIDENT])
    assert opened(under_way, TRAINING) == (category, stage)
    over = replace(OPEN_INCIDENT, recovered_unix_s=1009.0)
    stepping = cluster_of(RESTARTED, rank_report(0, 41), rank_report(1, 41), incidents=[over])
    assert opened(stepping, TRAINING) == (PENDING, "")


def test_evidence_and_ranks_that_end_are_draining_and_then_it_is_a_restart() -> None:
    plan = replace(PLAN, state="evidence", incident="i")
    assert opened(cluster_of(plan), TRAINING) == (Category.DRAINING, "i:drain")
    plan = replace(plan, state="ended")
    assert opened(cluster_of(plan), TRAINING) == (Category.DRAINING, "i:drain")
    down = cluster_of(plan, agents="joining")
    assert opened(down, TRAINING) == (Category.RESTART, "i:rendezvous")
    rescue = CheckpointOrder("c", 0, 3, 40, "/c", "writing", 1.0, trigger="failure")
    assert opened(replace(down, checkpoint=rescue), TRAINING) == (Category.DRAINING, "i:drain")


def test_a_pause_counts_only_while_nothing_runs() -> None:
    plan = replace(PLAN, pause=PAUSED)
    well = cluster_of(plan, rank_report(0, 9), rank_report(1, 9))
    assert opened(well, TRAINING) == (PENDING, "")
    broken = cluster_of(plan, rank_report(0, 9, alive=False, exit_code=-9), rank_report(1, 9))
    assert opened(broken, TRAINING) == (Category.PAUSED, "")
    down = cluster_of(replace(plan, state="ended", incident="i"), agents="joining")
    assert opened(down, TRAINING) == (Category.PAUSED, "")


def test_training_goes_on_while_a_sidecar_that_was_restarted_tells_nothing_yet() -> None:
    assert opened(cluster_of(PLAN, rank_report(1, 40)), TRAINING) == (PENDING, "")
    assert opened(cluster_of(PLAN), TRAINING) == (PENDING, "")
    assert opened(cluster_of(PLAN), replace(TRAINING, attempt=-1)) == (Category.INIT, "")


def test_a_hang_that_nothing_is_done_about_counts_until_it_is_over() -> None:
    hang = Incident("i", 0, "hang", "a", [0], detected_unix_s=1005.0, decided="observe")
    ranks = rank_report(0, 9), rank_report(1, 9)
    assert opened(cluster_of(PLAN, *ranks, incidents=[hang]), TRAINING)[0] == "hang_undetected"
    over = replace(hang, recovered_unix_s=1009.0)
    assert opened(cluster_of(PLAN, *ranks, incidents=[over]), TRAINING)[0] == PENDING
    numbers = replace(hang, cause="nonfinite")
    assert opened(cluster_of(PLAN, *ranks, incidents=[numbers]), TRAINING)[0] == PENDING


def test_before_the_first_attempt_and_between_runs_nodes_are_waited_for() -> None:
    waiting = cluster_of(None, agents="joining")
    standing = stand(waiting, None)
    assert (standing.open, standing.gpus, standing.run) == (Category.QUEUED, 2, "")
    done = replace(PLAN, state="done")
    over = cluster_of(done)
    assert opened(over, TRAINING) == (CLOSED, "")
    newcomer = replace(agent("c", "joining"), incarnation="another")
    again = stand(replace(over, agents={"c": newcomer}), replace(TRAINING, open=CLOSED))
    assert (again.open, again.is_anew, again.gpus) == (Category.QUEUED, True, 1)


def test_another_run_is_known_by_when_it_began() -> None:
    later = replace(PLAN, began_unix_s=2000.0)
    standing = stand(cluster_of(later), TRAINING)
    assert (standing.is_anew, standing.open) == (True, Category.INIT)
    assert not stand(cluster_of(PLAN), replace(TRAINING, run="")).is_anew


def test_while_an_emptied_store_has_no_plan_all_stays_as_it_was() -> None:
    standing = stand(cluster_of(None, agents="running"), TRAINING)
    assert (standing.open, standing.run, standing.attempt) == (PENDING, RUN, 0)
    assert (standing.gpus, standing.nodes, standing.is_anew) == (2, 2, False)


def test_a_job_of_others_is_followed_without_a_plan() -> None:
    ranks = rank_report(0, 9), rank_report(1, 9)
    watched = replace(cluster_of(PLAN, *ranks), plan=None, agents={})
    nodes = {name: replace(node, attached=True) for name, node in watched.nodes.items()}
    watched = replace(watched, nodes=nodes)
    standing = stand(watched, None)
    assert (standing.open, standing.run, standing.gpus) == (PENDING, "attached", 2)
    crash = Incident("i", 0, "crash", "a", [0], detected_unix_s=5.0, decided="leave")
    assert opened(replace(watched, incidents={"i": crash}))[0] == Category.RESTART
    gone = {name: replace(node, ranks=[]) for name, node in nodes.items()}
    assert opened(replace(watched, nodes=gone), replace(TRAINING, run="attached"))[0] == CLOSED


def test_the_largest_attempt_is_remembered() -> None:
    shrunk = Plan(1, 3, "running", PLAN.members[:1], 1, began_unix_s=1000.0)
    assert stand(cluster_of(shrunk), TRAINING).nodes == 2
    assert stand(cluster_of(shrunk), TRAINING).gpus == 1
