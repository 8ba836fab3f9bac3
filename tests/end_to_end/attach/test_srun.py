"""A real srun's job on two nodes, watched by one attached sidecar on each."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import slurm_cluster
from tests.end_to_end.attach.conftest import BRISK, TRAINING, kept_of
from tests.slurm_cluster import SlurmCluster

if TYPE_CHECKING:
    from tests.end_to_end.attach.conftest import Ground
    from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(240)]

SCRIPT = f"""#!/bin/bash
eval "$({sys.executable} -m holdfast_sidecar.cli.main attach --environment)"
srun --ntasks=2 --output={{out}}/train.log {sys.executable} {TRAINING} &
srun --overlap --ntasks-per-node=1 --output={{out}}/attach-%N.log \\
    {sys.executable} -m holdfast_sidecar.cli.main attach {" ".join(BRISK)} {{options}} &
wait %1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster.running(nodes=2) as made:
        yield made


def submit(cluster: SlurmCluster, ground: Ground, options: str) -> str:
    script = ground.folder / "job.sh"
    script.write_text(SCRIPT.format(out=ground.out, options=options))
    return cluster.submit(
        script,
        ["--nodes=2", "--ntasks-per-node=1", f"--output={ground.out}/batch.log"],
        **{name: value for name, value in ground.environment.items() if name not in os.environ},
    )


def logs(ground: Ground) -> str:
    return "".join(path.read_text() for path in sorted(ground.out.glob("attach-*.log")))


def test_told_to_act_the_culprit_is_named_across_nodes_and_ended_so_that_srun_notices(
    cluster: SlurmCluster, ground: Ground, server: Server
) -> None:
    ground.more = {"HOLDFAST_REDIS": server.settings.url}
    number = submit(cluster, ground, "--mode=act")
    job = f"slurm-{number}"
    pids = ground.await_ranks(2)
    ground.await_that(lambda: "attached, attempt 0, 2 ranks, healthy" in status(ground, job), "up")

    os.kill(pids[1], signal.SIGSTOP)
    ground.await_that(lambda: "incident" in logs(ground), "the stopped rank is named")
    ground.await_that(lambda: not Path(f"/proc/{pids[1]}").exists(), "the culprit is ended")
    cluster.await_that(lambda: cluster.job(number)["JobState"] != "RUNNING", "srun has noticed")
    story = ground.explain(job)
    assert (story["cause"], story["culprit_node"], story["culprit_ranks"]) == ("hang", "n1", [1])
    assert story["decided"] == "end"
    assert story["kept_by"] == ["n0", "n1"]
    assert "its process was ended for whoever launched the job to notice" in story["verdict"]
    assert {"rank-0.json", "rank-1.json"} <= kept_of(story)  # of both nodes, before the end


def status(ground: Ground, job: str) -> str:
    return ground.holdfast("status", "--job", job)
