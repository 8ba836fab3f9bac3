"""Snapshots with no checkpoint directory at all: a killed rank costs no completed step.

The job ends with the weights of the undisturbed one. Where memory is short it trains all the same,
and says so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job, await_exit
from tests.end_to_end.faults.result import assert_same, run_undisturbed

from holdfast.contract.page import Word, parse_words
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.ranks.page import open_page
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

STEPS = 200
OPTIONS = ["--nproc-per-node=2", *CLOSE_ORDERS]


def taken(job: Job) -> list[int]:
    """Snapshots that each rank of the newest attempt has sealed."""
    newest = max((rank.attempt for rank in job.ranks().values()), default=-1)
    counts = []
    for path in find(job.shm, f"*/{job.name}/*/attempt-{newest}-*.page"):
        if (held := open_page(path)) is not None:
            counts.append(parse_words(held.read())[Word.SNAPSHOTS_TAKEN])
            held.close()
    return counts


def await_snapshots(job: Job, more: int = 2) -> None:
    before = taken(job)
    goal = min(before, default=0) + more
    job.await_that(lambda: len(taken(job)) == 2 and min(taken(job)) >= goal, "snapshots are taken")


def slots(job: Job) -> dict[str, int]:
    """The slots' files by name -> inode."""
    return {p.name: p.stat().st_ino for p in find(job.shm, f"*/{job.name}/*/snapshots/rank-*")}


def shown(job: Job) -> SnapshotReport:
    """What the sidecar tells of its slots; nothing yet, before it tells anything."""
    found = node_report(job)
    return SnapshotReport() if found is None or found.snapshot is None else found.snapshot


def node_report(job: Job) -> NodeReport | None:
    assert job.server is not None
    text = job.server.store(job.name).read().section(Section.NODES).get("a", "")
    return decode(NodeReport, text)


def findings(job: Job) -> set[Kind]:
    found = node_report(job)
    return set() if found is None else {finding.kind for finding in found.findings}


def explained(job: Job) -> dict[str, object]:
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "explain", "--json"]
    assert job.server is not None
    command += ["--job", job.name, "--redis", job.server.settings.url]
    done = subprocess.run(command, env=job.environment, capture_output=True, text=True, check=True)
    story: dict[str, object] = json.loads(done.stdout)
    return story


def test_a_killed_rank_costs_no_completed_step_and_no_bit(job: Job) -> None:
    node = job.start(
        "a", [*OPTIONS, "--set=snapshot.every_steps=1"], ["resumable", str(STEPS), "0.02"]
    )
    job.await_stepping(2)
    await_snapshots(job, more=5)
    made = slots(job)
    assert len(made) == 6
    os.kill(job.ranks()[1].pid, signal.SIGKILL)
    job.await_stepping(2, attempt=1)
    await_snapshots(job)
    assert slots(job) == made, "the next attempt's ranks were given the slots of the one before"
    job.await_that(lambda: bool(job.incidents()[0].recovered_unix_s), "the incident is over")
    (incident,) = job.incidents()
    assert incident.step_resumed == incident.step_reached >= 5
    story = explained(job)
    assert (story["cause"], story["lost_steps"]) == ("crash", 0)
    assert node.wait() == 0
    assert_same(job, run_undisturbed(2, STEPS))
    assert not list(job.shm.iterdir())


def test_snapshots_outlive_their_sidecar(job: Job) -> None:
    job.start("a", [*OPTIONS, "--set=snapshot.every_steps=1"], ["resumable", "100000", "0.02"])
    job.await_stepping(2)
    await_snapshots(job)
    made, first = slots(job), job.sidecar("a")
    os.kill(first, signal.SIGKILL)
    await_exit(first)
    await_snapshots(job)
    job.await_that(lambda: job.sidecar("a") not in (0, first), "another sidecar watches")
    job.await_that(lambda: shown(job).slots == 3 and bool(shown(job).held), "it picked them up")
    assert slots(job) == made
    step = job.ranks()[0].step
    os.kill(job.ranks()[0].pid, signal.SIGKILL)
    job.await_stepping(2, attempt=1)
    job.await_that(lambda: bool(job.incidents()[0].recovered_unix_s), "the incident is over")
    (incident,) = job.incidents()
    assert incident.step_resumed == incident.step_reached >= step


@pytest.fixture
def small_shm(job: Job) -> Iterator[Callable[[str], None]]:
    """Puts a small shared memory under the job."""
    mounted = []

    def mount(size: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(job.shm)]
        subprocess.run(command, check=True)
        mounted.append(job.shm)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 and not os.environ.get("CI"), reason="mounting a tmpfs needs root"
)
def test_a_small_shared_memory_takes_no_snapshot_away(
    job: Job, small_shm: Callable[[str], None]
) -> None:
    small_shm("600k")
    node = job.start(
        "a", [*OPTIONS, "--set=paths.shm_reserve_bytes=300k"], ["resumable", str(STEPS), "0.02"]
    )
    job.await_stepping(2)
    await_snapshots(job)
    assert shown(job).short_of == ""
    assert node.wait() == 0
    assert_same(job, run_undisturbed(2, STEPS))
    assert "snapshots: none" not in job.sidecar_log("a")


def test_too_little_memory_leaves_the_job_training_and_people_told(job: Job) -> None:
    node = job.start(
        "a", [*OPTIONS, "--set=snapshot.memory_share=0.00000001"], ["resumable", str(STEPS), "0.02"]
    )
    job.await_that(lambda: shown(job).short_of == "memory", "the shortage is told")
    job.await_that(lambda: Kind.NO_SNAPSHOTS in findings(job), "the finding is there")
    assert node.wait() == 0
    assert_same(job, run_undisturbed(2, STEPS))
    assert "snapshots: none" in job.sidecar_log("a")
