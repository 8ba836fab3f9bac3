"""Wall clocks that are set, or differ between nodes: nothing is decided by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.controller.fence import SharedClock
from holdfast_sidecar.store.memory_store import MemoryStore

HOUR_S = 3600.0


def leader(job: SimulatedJob) -> str:
    return MemoryStore(job.server).read().lease.candidate.partition("/")[0]


def jump(job: SimulatedJob, by_s: float) -> None:
    """Of whoever leads."""
    job.nodes[leader(job)].clock_ahead_s += by_s


def change_leader(job: SimulatedJob) -> None:
    before = leader(job)
    identity = job.nodes[before].coordinator._candidate
    MemoryStore(job.server).resign(identity)
    other = next(n for n, node in job.nodes.items() if n != before and not node.dead)
    candidate = job.nodes[other].coordinator._candidate
    MemoryStore(job.server).campaign(candidate, 60.0, 0)
    job.run(1)
    assert leader(job) == other


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_node_that_is_awaited_has_its_time(
    by_s: float, is_handed_over: bool, tmp_path: Path
) -> None:
    job = SimulatedJob(tmp_path, nodes=3, policy=PolicySettings(join_timeout_s=30.0))
    job.run_until(lambda: job.is_running(0))
    awaited = next(name for name in job.nodes if name != leader(job))
    job.nodes[awaited].dead = True
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    jump(job, by_s)
    job.run(5)
    if is_handed_over:
        change_leader(job)
    job.run(10)
    assert job.plan is not None
    assert job.plan.state == "ended"
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped", 40.0)
    assert "too few to go on" in job.plan.message


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_pause_before_a_restart_is_as_long_as_it_is(
    by_s: float, is_handed_over: bool, tmp_path: Path
) -> None:
    job = SimulatedJob(tmp_path, policy=PolicySettings(surroundings_backoff_s=10.0))
    job.run_until(lambda: job.is_running(0))
    job.run(1)
    job.nodes["n0"].crash(0, 1, job.now, "OSError: [Errno 116] Stale file handle")
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    began = job.now
    jump(job, by_s)
    job.run(2)
    if is_handed_over:
        change_leader(job)
    job.run_until(lambda: job.is_running(1), 40.0)
    assert 10.0 <= job.now - began <= 20.0


def test_failures_of_long_ago_do_not_count_again_and_new_ones_are_not_forgotten(
    tmp_path: Path,
) -> None:
    policy = PolicySettings(budget=3, budget_window_s=60.0, backoff_s=0.1, backoff_limit_s=0.1)
    job = SimulatedJob(tmp_path, policy=policy)
    for attempt in range(4):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        job.run(1 + attempt)
        jump(job, HOUR_S if attempt % 2 else -HOUR_S)
        job.nodes["n0"].crash(0, -11, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert "3 restarts for crash within 60 s" in job.plan.message  # type: ignore[union-attr]


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_time_limit_is_seen_in_time_by_a_leader_whose_clock_is_off(
    ahead_s: float, tmp_path: Path
) -> None:
    job = SimulatedJob(tmp_path, registered=True, policy=PolicySettings(time_limit_margin_s=5.0))
    ends = job.now + 20.0
    for node in job.nodes.values():
        node.ends_s, node.clock_ahead_s = ends, ahead_s
    job.run_until(lambda: job.is_running(0))
    job.run_until(lambda: job.now > ends - 5.5)
    assert job.plan is not None
    assert job.plan.state == "running"
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.now < ends - 2


def test_the_shared_clock_is_read_once_for_each_occasion() -> None:
    told = iter([1000.0, 5000.0])
    clock = SharedClock(lambda: next(told))
    assert clock.unix_s(1, 10.0) == 1000.0
    assert clock.unix_s(1, 25.0) == 1015.0
    assert clock.unix_s(2, 30.0) == 5000.0
