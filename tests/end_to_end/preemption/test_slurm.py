"""The batch script for Slurm under a real slurmctld: cancelled, timed out, requeued, resumed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import slurm_cluster
from tests.end_to_end.preemption.conftest import TRAINING
from tests.slurm_cluster import SlurmCluster

if TYPE_CHECKING:
    from tests.end_to_end.preemption.conftest import Scheduler
    from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(180)]

SCRIPT = Path(__file__).parents[3] / "deploy/slurm/holdfast.sbatch"

LONG_S = 60.0
"""A launch on a machine on which everything else runs as well."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster.running(nodes=3) as made:
        yield made


def submit(
    cluster: SlurmCluster, scheduler: Scheduler, server: Server, *options: str, **environment: str
) -> str:
    """The job, on one node with two ranks and no spare unless told otherwise."""
    shape = {"HOLDFAST_SPARES": "0", "HOLDFAST_RANKS": "2"}
    return cluster.submit(
        SCRIPT,
        ["--nodes=1", "--cpus-per-task=2", f"--output={scheduler.folder}/slurm.log", *options],
        str(TRAINING),
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        HOLDFAST_REDIS=server.settings.url,
        HOLDFAST_CHECKPOINTS=str(scheduler.checkpoints),
        HOLDFAST_SET_SIDECAR_TICK_S="0.1",
        HOLDFAST_SET_SIDECAR_HEARTBEAT_S="0.1",
        HOLDFAST_SET_SNAPSHOT_PEER_LISTEN="127.0.0.1:0",
        **{k: v for k, v in scheduler.environment.items() if k not in os.environ},
        **shape | environment,
    )


def sealed(scheduler: Scheduler) -> list[int]:
    return sorted(
        int(path.parent.name.split("-")[1])
        for path in scheduler.checkpoints.glob("*/*/manifest.json")
    )


def test_scancel_has_the_job_saved_and_leaves_it_cancelled(
    cluster: SlurmCluster, scheduler: Scheduler, server: Server
) -> None:
    job = submit(cluster, scheduler, server)
    scheduler.await_steps(10)
    cluster.run("scancel", job)
    cluster.await_that(lambda: cluster.job(job)["JobState"] == "CANCELLED", "cancelled", LONG_S)
    log = (scheduler.folder / "slurm.log").read_text()
    assert "the checkpoint of step" in log, log
    assert sealed(scheduler) != []
    assert cluster.job(job)["Restarts"] == "0"


def test_a_bug_that_comes_back_is_not_requeued(
    cluster: SlurmCluster, scheduler: Scheduler, server: Server
) -> None:
    job = submit(cluster, scheduler, server, BROKEN_AT="7")
    cluster.await_that(lambda: cluster.job(job)["JobState"] == "FAILED", "failed", 2 * LONG_S)
    told = cluster.job(job)
    assert (told["ExitCode"], told["Restarts"]) == ("65:0", "0"), told
    log = (scheduler.folder / "slurm.log").read_text()
    said = r"the same failure 2 times: ValueError: sample \d+ has no label at step 7"
    assert re.search(said, log), log


def test_before_its_time_limit_a_job_is_saved_requeued_and_resumed(
    cluster: SlurmCluster, scheduler: Scheduler, server: Server
) -> None:
    margin = {"HOLDFAST_SET_POLICY_TIME_LIMIT_MARGIN_S": "50"}
    (scheduler.out / "until").write_text("100000")
    job = submit(cluster, scheduler, server, "--time=1", **margin)
    cluster.await_that(
        lambda: cluster.job(job)["Restarts"] == "1" and cluster.job(job)["JobState"] == "PENDING",
        "back in the queue",
        2 * LONG_S,
    )
    log = (scheduler.folder / "slurm.log").read_text()
    # Slurm looks at its clock once a minute, and may not come to warn a job as short as this one.
    assert "warned that the time is over soon" not in log, log
    assert "preempted (time limit on" in log, log
    (step,) = sealed(scheduler)
    reached = len(scheduler.steps())
    (scheduler.out / "until").write_text(str(reached + 20))
    # Slurm lets a requeued job wait for minutes, and a node refuses one within the same second.
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+3seconds", "TimeLimit=30")
    cluster.await_that(lambda: cluster.job(job)["JobState"] == "COMPLETED", "completed", LONG_S)
    assert scheduler.steps()[reached:] == list(range(step, reached + 20))


def test_a_spare_replaces_a_lost_node_and_a_warned_job_is_saved_and_requeued(
    cluster: SlurmCluster, scheduler: Scheduler, server: Server
) -> None:
    shape = {"HOLDFAST_SPARES": "1", "HOLDFAST_RANKS": "1"}
    job = submit(cluster, scheduler, server, "--nodes=3", **shape)
    scheduler.await_steps(10)
    trained = cluster.nodes_of(str(TRAINING))
    assert len(trained) == 2, "the third waits"
    # The batch script itself is on the first.
    lost = max(trained)
    cluster.lose(lost)
    scheduler.await_steps(10)  # of both ranks, so that the third node has one
    # What slurmctld would conclude by itself after SlurmdTimeout.
    cluster.run("scontrol", "update", f"NodeName={lost}", "State=DOWN", "Reason=lost")
    scheduler.await_steps(5)
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    cluster.await_that(
        lambda: cluster.job(job)["Restarts"] == "1" and cluster.job(job)["JobState"] == "PENDING",
        "back in the queue",
        LONG_S,
    )
    log = (scheduler.folder / "slurm.log").read_text()
    assert "holdfast.sbatch: warned that the time is over soon: saving" in log, log
    assert sealed(scheduler) != [], log
    cluster.run("scancel", job)
