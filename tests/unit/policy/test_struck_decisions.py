"""A decision that is struck at any of its writes is carried to its end, once, by one leader."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.controller.troubled_job import (
    Stroke,
    TroubledJob,
    answer_is_lost,
    incidents_of,
    leader_is_cut_off,
    node_dies,
    server_fails_over,
    server_is_emptied,
    server_pauses,
    sidecar_dies,
)

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.budget import WITHOUT_NODE
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

SEEDS = range(int(os.environ.get("HOLDFAST_SOAK_SEEDS", "20")))

WRITES = 8
"""A hang's: plan, incident, incident, plan, incident, key, plan, … until all step again."""

STRIKES = [
    sidecar_dies,
    node_dies,
    leader_is_cut_off,
    answer_is_lost,
    server_pauses,
    server_is_emptied,
    server_fails_over,
]


def crash(job: SimulatedJob) -> None:
    job.nodes["n1"].crash(1, -9, job.now)


def hang(job: SimulatedJob) -> None:
    job.nodes["n1"].frozen.add(0)


def lose_node(job: SimulatedJob) -> None:
    job.nodes["n2"].dead = True


def crash_twice(job: SimulatedJob) -> None:
    """Two failures at once, on two nodes."""
    job.nodes["n1"].crash(0, -9, job.now)
    job.nodes["n2"].crash(1, -11, job.now)


def crash_and_lose_node(job: SimulatedJob) -> None:
    job.nodes["n2"].dead = True
    job.nodes["n1"].crash(0, -9, job.now)


def fall_ill(job: SimulatedJob) -> None:
    """A GPU that a rank trains on needs a reset."""
    job.nodes["n1"].ill = [gpu_fault(job.now)]


def fall_ill_and_crash(job: SimulatedJob) -> None:
    fall_ill(job)
    job.nodes["n1"].crash(0, -6, job.now)


def gpu_fault(since_unix_s: float) -> Finding:
    return Finding(
        Kind.GPU_FAULT,
        "",
        since_unix_s,
        0.95,
        [0],
        acts=True,
        what="xid 79",
        gpu="GPU-1",
        remedy=Remedy.REBOOT_NODE,
    )


FAULTS = [crash, hang, lose_node, crash_twice, crash_and_lose_node, fall_ill, fall_ill_and_crash]


def is_stepping(job: SimulatedJob) -> bool:
    plan = job.plan
    if plan is None or plan.state != "running":
        return False
    members = [job.nodes[member.node] for member in plan.members]
    return all(n.attempt == plan.attempt and n.step > n.resumed + 1 for n in members)


def survive(job: TroubledJob, fault: Callable[[SimulatedJob], None]) -> None:
    """Run, fail, be struck, and step again."""
    job.run_until(lambda: is_stepping(job))
    fault(job)
    job.is_armed = True
    job.run_until(lambda: job.plan is not None and job.plan.attempt > 0, 40)
    job.run_until(lambda: is_stepping(job), 40)
    job.run(3)
    job.run_until(lambda: is_stepping(job), 40)
    job.check()


def make(folder: Path, stroke: Stroke | None, seed: int = 0, spares: int = 1) -> TroubledJob:
    policy = PolicySettings(backoff_s=0.1, evidence_timeout_s=10.0)
    return TroubledJob(folder, stroke, nodes=3, spares=spares, least=2, policy=policy, seed=seed)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, WRITES + 1))
def test_a_leader_that_dies_at_any_write_leaves_a_hang_to_the_next_one(
    tmp_path: Path, at: int, when: str
) -> None:
    job = make(tmp_path, Stroke(at, when, sidecar_dies))
    survive(job, hang)
    assert job.stroke is not None
    assert job.stroke.is_over, "there were fewer writes"
    (incident,) = incidents_of(job, 0)
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("hang", "n1", [2])
    assert incident.decided == "restart"
    assert set(incident.kept_by) >= {"n0", "n1", "n2"}
    assert incident.recovered_unix_s > incident.ended_unix_s > 0
    assert job.plan is not None
    assert job.plan.restarts == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, WRITES + 1))
@pytest.mark.parametrize("fault", [fall_ill, fall_ill_and_crash])
def test_a_leader_that_dies_at_any_write_leaves_ill_hardware_to_the_next_one(
    tmp_path: Path, fault: Callable[[SimulatedJob], None], at: int, when: str
) -> None:
    job = make(tmp_path, Stroke(at, when, sidecar_dies))
    survive(job, fault)
    (incident,) = incidents_of(job, 0)
    assert (incident.cause, incident.culprit_node, incident.gpu) == ("gpu", "n1", "GPU-1")
    assert (incident.decided, incident.escalation) == ("restart", WITHOUT_NODE)
    assert job.plan is not None
    assert (job.plan.restarts, [one.node for one in job.plan.outside]) == (1, ["n1"])


@pytest.mark.parametrize("seed", range(12))
def test_any_failure_is_survived_whatever_strikes_at_whichever_write(
    tmp_path: Path, seed: int
) -> None:
    strike_somewhere(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [100 + seed for seed in SEEDS])
def test_more_of_the_same(tmp_path: Path, seed: int) -> None:
    for each in range(10):
        strike_somewhere(tmp_path / str(each), 1000 * seed + each)


def strike_somewhere(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    fault, strike = chance.choice(FAULTS), chance.choice(STRIKES)
    at, when = chance.randint(1, WRITES), chance.choice(["before", "after"])
    job = make(folder, Stroke(at, when, strike), seed)
    try:
        survive(job, fault)
    except AssertionError as error:
        what = f"{fault.__name__}, {strike.__name__} {when} write {at}"
        raise AssertionError(f"{what}: {error}\n{job.story()}") from error


@pytest.mark.parametrize("who", ["the leader", "another"])
def test_a_node_that_is_cut_off_decides_nothing_and_comes_back_as_a_follower(
    tmp_path: Path, who: str
) -> None:
    job = make(tmp_path, None, spares=0)
    job.run_until(lambda: is_stepping(job))
    job.run(1)
    leads = {name: node.coordinator.orders().is_leader for name, node in job.nodes.items()}
    cut = next(name for name, is_leader in leads.items() if is_leader is (who == "the leader"))
    written = len(job.orders)
    # Neither packets nor the ranks' own traffic pass: nothing shows that it lives.
    for node in job.nodes.values():
        node.communicates = False
    job.unreached, job.cut_until[cut] = {cut}, job.now + 12.0
    job.run(1)
    assert not job.nodes[cut].coordinator.orders().store_up
    assert job.nodes[cut].state == "running", "nothing was ended there"
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1 and is_stepping(job))
    assert job.plan is not None
    assert cut not in {member.node for member in job.plan.members}
    assert job.nodes[cut].attempts_run == [0]
    assert cut not in {o.lease.candidate.partition("/")[0] for o in job.orders[written:]}
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 2 and is_stepping(job))
    assert len(job.plan.members) == 3, "it came back"
    assert not job.nodes[cut].coordinator.orders().is_leader
    job.check()


def test_a_failure_during_recovery_is_one_more_incident_or_part_of_the_first(
    tmp_path: Path,
) -> None:
    job = make(tmp_path, None)
    job.run_until(lambda: is_stepping(job))
    crash(job)
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.nodes["n2"].dead = True  # while the others are about to start again
    job.run_until(lambda: job.plan is not None and job.plan.attempt > 0 and is_stepping(job))
    first = job.nodes["n0"]
    job.run_until(lambda: first.attempt > 0)
    first.crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt > 1 and is_stepping(job), 40)
    job.check()
    assert all(i.decided == "restart" for i in job.incidents())
    assert len(job.incidents()) == len({i.attempt for i in job.incidents()})


def test_a_check_that_finds_nothing_wrong_can_find_something(tmp_path: Path) -> None:
    """Planted: an epoch led by two, a stale plan obeyed, an end without evidence."""
    job = make(tmp_path, None)
    survive(job, hang)
    assert len(job.late) == 1
    job.late["another"] = {"n1"}
    with pytest.raises(AssertionError, match="without evidence"):
        job.check()
    job.late.clear()
    plans = job.obeyed["n0"]
    plans.append(plans[0])
    with pytest.raises(AssertionError, match="stale"):
        job.check()
    plans.pop()
    last = job.orders[-1]
    job.orders.append(replace(last, lease=replace(last.lease, candidate="other/x")))
    with pytest.raises(AssertionError, match="led twice"):
        job.check()
