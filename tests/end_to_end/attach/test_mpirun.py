"""A real mpirun's job, watched by its hooks and from outside at the same time."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.attach.conftest import TRAINING, kept_of

if TYPE_CHECKING:
    from tests.end_to_end.attach.conftest import Ground

pytestmark = [pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(240)]

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(autouse=True)
def mpirun() -> None:
    if shutil.which("mpirun") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("mpirun is not installed: in CI these tests must run")
        pytest.skip("mpirun is not installed")


def test_a_stopped_rank_and_a_killed_one_are_named_with_hooks_and_without(ground: Ground) -> None:
    ground.more = AS_ROOT
    command = f"exec mpirun --oversubscribe -n 3 {sys.executable} {TRAINING}"
    job = ground.start("mpirun", "sh", "-c", f"{ground.exports('seen')}\n{command}")
    hooked = ground.attach("seen")
    pids = ground.await_ranks(3)
    outside = ground.attach("dark", f"--pid={job.process.pid}")
    for watch in (hooked, outside):
        all_are = partial(lambda w: w.output.count("watching rank") == 3, watch)
        ground.await_that(all_are, "all are watched")
        for rank, pid in pids.items():
            assert f"watching rank {rank} (process {pid})" in watch.output
    ground.await_that(lambda: "attached, attempt 0, 3 ranks, healthy" in status(ground), "healthy")

    os.kill(pids[1], signal.SIGSTOP)
    for watch in (hooked, outside):
        ground.await_that(
            partial(lambda w: "incident" in w.output, watch), "the stopped rank is named"
        )
    ground.await_that(lambda: "(training.py:" in hooked.output, "it is told where ranks stood")
    seen, dark = ground.explain("seen"), ground.explain("dark")
    for story in (seen, dark):
        assert (story["cause"], story["culprit_ranks"]) == ("hang", [1]), story
        assert story["decided"] == "observe"
        assert story["verdict"].startswith("Rank 1 on node")
        assert any("(state T)" in reason for reason in story["reasons"])
        assert "rank-1.json" in kept_of(story)
    assert seen["confidence"] > 0.9
    assert {"rank-1.page", "kept.json"} <= kept_of(seen)

    os.kill(pids[1], signal.SIGCONT)
    for watch in (hooked, outside):
        ground.await_that(partial(lambda w: "over after" in w.output, watch), "it goes on")
    assert job.process.poll() is None

    os.kill(pids[2], signal.SIGKILL)
    assert job.wait() != 0
    assert hooked.wait() == 1
    # mpirun ends all at once, so that who began it hardly shows from outside.
    assert outside.wait() in (0, 1)
    crash = ground.explain("seen")
    assert (crash["cause"], crash["culprit_ranks"], crash["decided"]) == ("crash", [2], "leave")
    assert crash["verdict"].endswith("what follows is for whoever launched the job.")
    assert not list((ground.folder / "shm").rglob("*"))


def status(ground: Ground) -> str:
    return ground.holdfast("status", "--job", "seen")
