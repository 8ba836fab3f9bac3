"""Launches that meet on one Redis without knowing of each other, and a launcher under nohup.

Ranks import no torch here: what is tested is which launch they belong to.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.protocol import Section

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.end_to_end.run.conftest import Ground
    from tests.servers import Server

pytestmark = pytest.mark.torch

PATIENCE_S = 60.0

EXPERIMENT = """
import time
name = sys.argv[-1]
open(os.path.join(os.environ["OUT"], f"ran-{name}-{os.environ['NODE_NAME']}-{rank}"), "w").close()
end = time.time() + 120
while time.time() < end and not os.path.exists(os.path.join(os.environ["OUT"], f"finish-{name}")):
    time.sleep(0.02)
"""
"""A rank that leaves word which experiment it ran, and works until that one is to finish."""


def ran(ground: Ground) -> set[str]:
    """`EXPERIMENT-NODE-RANK` of every rank that was started."""
    return {p.name.removeprefix("ran-") for p in (ground.folder / "out").glob("ran-*")}


def await_that(is_so: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.03)


def finish(ground: Ground, *experiments: str) -> None:
    for name in experiments:
        (ground.folder / "out" / f"finish-{name}").touch()


def machine(ground: Ground, name: str) -> dict[str, str]:
    """Shared memory and state of a machine of its own, as another container has it."""
    for part in ("shm", "state"):
        (ground.folder / name / part).mkdir(parents=True, exist_ok=True)
    return {
        "NODE_NAME": name,
        "HOLDFAST_SET_PATHS_SHM_DIR": str(ground.folder / name / "shm"),
        "HOLDFAST_SET_PATHS_STATE_DIR": str(ground.folder / name / "state"),
    }


def test_two_launches_of_one_script_both_run(ground: Ground, server: Server) -> None:
    """A sweep, or two users: the second waited for the first, and left with 0 without running."""
    script = ground.script("train.py", EXPERIMENT)
    redis = f"--redis={server.settings.url}"
    one = ground.start(redis, script, "--lr", "0.1", NODE_NAME="x")
    await_that(lambda: ran(ground) == {"0.1-x-0"}, "the first experiment runs")
    two = ground.start(redis, script, "--lr", "0.2", NODE_NAME="x")
    await_that(lambda: ran(ground) == {"0.1-x-0", "0.2-x-0"}, "the second experiment runs")
    finish(ground, "0.1", "0.2")
    assert (one.wait(), two.wait()) == (0, 0)
    names = {
        line.split()[5]
        for launched in (one, two)
        for line in launched.output.splitlines()
        if "this job is called " in line
    }
    assert len(names) == 2, f"{one.output}\n{two.output}"


def test_who_finds_all_places_taken_is_refused_and_one_launch_takes_no_place_in_another(
    ground: Ground, server: Server
) -> None:
    script = ground.script("train.py", EXPERIMENT)
    common = (f"--redis={server.settings.url}", "--job=sweep", "--nnodes=2")
    pair = [
        ground.start(*common, f"--node={node}", script, "0.1", **machine(ground, node))
        for node in "ab"
    ]
    await_that(lambda: ran(ground) == {"0.1-a-0", "0.1-b-1"}, "the first experiment runs")
    late = ground.start(*common, "--node=c", script, "0.2", **machine(ground, "c"))
    assert late.wait() == 2
    assert "job sweep runs already with all its nodes (a, b)" in late.output.splitlines()[-1]
    # Another launch, by a scheduler's word: also where a place is vacant, and a spare is asked for.
    scheduled = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    other = ground.start(*common, "--node=d", script, "0.2", **machine(ground, "d"), **scheduled)
    assert other.wait() == 2
    assert "launch" in other.output.splitlines()[-1]
    finish(ground, "0.1")
    assert [launched.wait() for launched in pair] == [0, 0]
    assert ran(ground) == {"0.1-a-0", "0.1-b-1"}


def test_several_nodes_without_a_name_are_refused_before_anything_starts(
    ground: Ground, server: Server
) -> None:
    script = ground.script("train.py", EXPERIMENT)
    for several in ("--nnodes=2", "--nnodes=1:2", "--spares=1"):
        refused = ground.run(f"--redis={server.settings.url}", several, script, "0.1")
        assert refused.process.returncode == 2
        (line,) = refused.output.splitlines()
        assert "give --job NAME" in line
    assert not ran(ground)


def test_nodes_of_one_slurm_step_find_each_other_without_a_name(
    ground: Ground, server: Server
) -> None:
    script = ground.script("train.py", EXPERIMENT)
    common = (f"--redis={server.settings.url}", "--nnodes=2")
    steps = [
        ground.start(
            *(*common, f"--node={step}{node}", script, step),
            **machine(ground, f"{step}{node}"),
            SLURM_JOB_ID="7",
            SLURM_STEP_ID=step,
        )
        for step in "34"
        for node in "ab"
    ]
    await_that(lambda: len(ran(ground)) == 4, "both steps run")
    finish(ground, "3", "4")
    assert [launched.wait() for launched in steps] == [0] * 4
    assert {name[:4].rstrip("-") for name in ran(ground)} == {"3-3a", "3-3b", "4-4a", "4-4b"}


def test_nodes_with_different_commands_are_told_of_in_one_line(
    ground: Ground, server: Server
) -> None:
    script = ground.script("train.py", EXPERIMENT)
    common = (f"--redis={server.settings.url}", "--job=j", "--nnodes=2")
    one = {"HOLDFAST_LAUNCH_ID": "by-hand"}
    a = ground.start(*common, "--node=a", script, "--lr=1", "x", **machine(ground, "a"), **one)
    b = ground.start(*common, "--node=b", script, "--lr=2", "x", **machine(ground, "b"), **one)
    await_that(lambda: len(ran(ground)) == 2, "both run")
    finish(ground, "x")
    assert (a.wait(), b.wait()) == (0, 0)
    told = [
        line
        for launched in (a, b)
        for line in launched.output.splitlines()
        if "started with different commands" in line
    ]
    assert len(told) == 1, told
    assert "arguments of the script (a | b)" in told[0]


def test_another_command_of_one_user_is_refused_though_there_is_room(
    ground: Ground, server: Server
) -> None:
    script = ground.script("train.py", EXPERIMENT)
    common = (f"--redis={server.settings.url}", "--job=j", "--nnodes=1:4")
    quick = (*common, "--rdzv-conf=last_call_timeout=0.1")
    first = ground.start(*quick, "--node=a", script, "0.1", **machine(ground, "a"))
    await_that(lambda: ran(ground) == {"0.1-a-0"}, "the first experiment runs")
    second = ground.start(*quick, "--node=b", script, "0.2", **machine(ground, "b"))
    assert second.wait() == 2
    assert "arguments of the script): choose another --job" in second.output.splitlines()[-1]
    finish(ground, "0.1")
    assert first.wait() == 0
    assert ran(ground) == {"0.1-a-0"}


def test_a_launcher_whose_node_name_is_taken_on_another_machine_is_refused(
    ground: Ground, server: Server
) -> None:
    """One host name for all containers: both would write over each other for ever."""
    script = ground.script("train.py", EXPERIMENT)
    common = (f"--redis={server.settings.url}", "--job=j", "--nnodes=2", "--node=localhost")
    first = ground.start(*common, script, "x", **machine(ground, "one"))
    store = open_store(server.settings, "j", {})
    await_that(lambda: bool(store.read().section(Section.AGENTS)), "the first one waits")
    second = ground.start(*common, script, "x", **machine(ground, "two"))
    assert second.wait() == 2
    assert "another launcher of job j is called localhost: give --node" in second.output
    third = ground.start(*common[:-1], "--node=other", script, "x", **machine(ground, "three"))
    await_that(lambda: len(ran(ground)) == 2, "the job runs")
    finish(ground, "x")
    assert (first.wait(), third.wait()) == (0, 0)


def test_nohup_outlives_its_terminal(ground: Ground, server: Server) -> None:
    """torchrun notoriously does not."""
    script = ground.script("train.py", EXPERIMENT)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        job = ground.start("--job=j", script, "x", NODE_NAME="x")
    finally:
        signal.signal(signal.SIGHUP, before)
    await_that(lambda: bool(ran(ground)), "it runs")
    job.process.send_signal(signal.SIGHUP)
    os.kill(job.process.pid, signal.SIGHUP)
    finish(ground, "x")
    assert job.wait() == 0, job.output
