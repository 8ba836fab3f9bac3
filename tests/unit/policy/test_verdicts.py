"""Checkpoints that prove good, and the way back to them, in a whole job without processes."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

from tests.unit.controller.simulated_job import STEP_S, SimulatedJob

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.store.memory_store import MemoryStore

SETTINGS = CheckpointSettings(dir="/c", every_steps=40, good_after_s=6.0, good_after_steps=5)


def start(folder: Path, settings: CheckpointSettings = SETTINGS) -> SimulatedJob:
    return SimulatedJob(folder, nodes=2, slots=1, registered=True, checkpoint=settings)


def verdicts(job: SimulatedJob) -> dict[int, str]:
    """Step -> verdict, as the shared ledger has it."""
    ledger = parse_cluster(MemoryStore(job.server).read()).ledger
    return {entry.step: entry.verdict for entry in ledger.values()}


def good(job: SimulatedJob) -> list[int]:
    return sorted(step for step, verdict in verdicts(job).items() if verdict == "good")


def test_a_checkpoint_is_good_once_the_job_ran_on_well_for_long_enough(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in verdicts(job))
    assert verdicts(job)[40] == "complete"
    sealed = job.now
    job.run_until(lambda: good(job) == [40])
    assert SETTINGS.good_after_s <= job.now - sealed < SETTINGS.good_after_s + 2


def test_steps_count_too(tmp_path: Path) -> None:
    far = dataclasses.replace(SETTINGS, good_after_s=0.0, good_after_steps=30)
    job = start(tmp_path, far)
    job.run_until(lambda: good(job) == [40])
    assert min(node.step for node in job.nodes.values()) >= 70


def test_bad_numbers_hold_it_back_and_the_wait_begins_anew_after_them(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in verdicts(job))
    job.run(SETTINGS.good_after_s / 2)
    job.nodes["n1"].onset = 70
    job.run(2 * SETTINGS.good_after_s)
    assert good(job) == []
    job.nodes["n1"].onset = -1
    well_again = job.now
    job.run_until(lambda: 40 in good(job))
    assert job.now - well_again >= SETTINGS.good_after_s


def test_after_bad_numbers_it_goes_back_to_the_newest_good_one_of_before(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in good(job) and 80 in verdicts(job))
    assert verdicts(job)[80] == "complete"
    job.nodes["n0"].onset = 90
    job.run(0.5)
    job.nodes["n0"].crash(0, 1, job.now, "FloatingPointError: loss is nan")
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    plan = job.plan
    assert plan is not None
    assert [candidate.step for candidate in plan.resume] == [40]
    assert "back to step 40, the newest good checkpoint before" in plan.message
    assert verdicts(job)[80] == "poisoned"
    assert job.incidents()[-1].onset_step == 90


def test_what_was_left_behind_is_not_come_back_to_by_the_next_crash(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in good(job) and 80 in verdicts(job))
    job.nodes["n0"].onset = 90
    job.run(0.5)
    job.nodes["n0"].crash(0, 1, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    job.run(5 * STEP_S)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 2)
    assert job.plan is not None
    assert [candidate.step for candidate in job.plan.resume] == [40]


def test_storage_that_takes_no_verdicts_does_not_keep_a_job_from_going_on(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in good(job) and 80 in verdicts(job))
    job.storage.takes_no_verdicts = True
    job.nodes["n0"].onset = 90
    job.run(0.5)
    job.nodes["n0"].crash(0, 1, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    assert job.plan is not None
    assert [candidate.step for candidate in job.plan.resume] == [40]


def test_a_crash_with_sound_numbers_takes_the_newest(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: 40 in good(job) and 80 in verdicts(job))
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    assert job.plan is not None
    assert [candidate.step for candidate in job.plan.resume][:2] == [80, 40]


def test_what_only_snapshots_have_kept_counts_towards_the_next_checkpoint(tmp_path: Path) -> None:
    """Attempts that are each shorter than the interval: without this none would ever be made."""
    by_time = CheckpointSettings(dir="/c", every_s=20.0)
    job = start(tmp_path, by_time)
    for attempt in range(5):
        job.run_until(
            partial(lambda n: {one.attempt for one in job.nodes.values()} == {n}, attempt)
        )
        for node in job.nodes.values():
            node.resumed, node.step = 80 * attempt, 80.0 * attempt  # as from a snapshot
        job.run(8.0)
        if job.storage.held:
            break
        job.nodes["n0"].crash(0, -9, job.now)
    assert [entry.attempt for entry in job.storage.held.values()] == [2]
