"""The launcher as process 1, as in a container: signals, orphans, exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.end_to_end.preemption.conftest import Launch, Scheduler

pytestmark = [
    pytest.mark.torch,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed"),
]

REQUEUE = 75

CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

ORPHANS = """
import os, subprocess, sys, time
for _ in range(20):
    subprocess.run(["sh", "-c", "sleep 0.1 &"])
time.sleep(0.5)
open(os.path.join(os.environ["OUT"], "started"), "w").close()
while not os.path.exists(os.path.join(os.environ["OUT"], "go")):
    time.sleep(0.02)
sys.exit(int(os.environ["CODE"]))
"""


def first_process(launch: Launch) -> psutil.Process:
    """Process 1 as it is seen from here."""
    (child,) = psutil.Process(launch.process.pid).children()
    return child


@pytest.mark.parametrize(("code", "ends_with"), [("0", 0), ("7", 1)])
def test_orphans_are_reaped_and_the_ranks_own_exit_codes_are_seen(
    scheduler: Scheduler, code: str, ends_with: int
) -> None:
    script = scheduler.folder / "orphans.py"
    script.write_text(ORPHANS)
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--max-restarts=0"]
    job = scheduler.start_command([*CONTAINER, *command, str(script)], CODE=code)
    scheduler.await_that((scheduler.out / "started").exists, "orphans have ended")
    children = first_process(job).children()
    assert psutil.STATUS_ZOMBIE not in [child.status() for child in children], children
    (scheduler.out / "go").touch()
    assert job.wait() == ends_with, scheduler.story()
    assert ("exited with code 7" in job.output) == (code == "7")


def test_sigterm_to_process_1_has_the_job_saved(scheduler: Scheduler) -> None:
    job = scheduler.start_command([*CONTAINER, *scheduler.command([])])
    scheduler.await_steps(10)
    first_process(job).send_signal(signal.SIGTERM)
    assert job.wait() == REQUEUE, scheduler.story()
    assert len(scheduler.sealed()) == 1
    assert "the checkpoint of step" in job.output


def test_a_killed_launcher_is_told_by_its_signal(scheduler: Scheduler) -> None:
    script = scheduler.folder / "orphans.py"
    script.write_text(ORPHANS)
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--max-restarts=0"]
    sets = ["--set=sidecar.grace_s=2.5"]
    job = scheduler.start_command([*CONTAINER, *command, *sets, str(script)], CODE="0")
    scheduler.await_that((scheduler.out / "started").exists, "ranks run")
    (launcher,) = first_process(job).children()
    launcher.kill()
    assert job.wait() == 128 + signal.SIGKILL
