"""What tells one launch from another, and one node's command from another's."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.launcher.ownership import (
    describe_command,
    launch_command,
    launch_of,
    scheduler_launch,
    unlike_commands,
)
from holdfast_sidecar.records.reports import AgentReport

STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "SLURM_PROCID": "1"}


def test_under_a_name_a_launch_is_its_schedulers_job_else_its_users() -> None:
    assert launch_of(STEP) == launch_of(STEP | {"SLURM_STEP_ID": "4"}) == "slurm-7"
    assert launch_of(STEP | {"HOLDFAST_LAUNCH_ID": "uid-1"}) == "uid-1"
    assert launch_of({}).startswith("user ")


def test_without_a_name_steps_of_one_allocation_are_launches_of_their_own() -> None:
    assert scheduler_launch(STEP, is_one_node=False) == "slurm-7.3"
    assert scheduler_launch(STEP, is_one_node=True) == "slurm-7.3.1"
    assert scheduler_launch({"SLURM_JOB_ID": "7"}, is_one_node=False) == "slurm-7"
    assert scheduler_launch({}, is_one_node=False) == ""
    uid = {"HOLDFAST_LAUNCH_ID": "x" * 300}
    assert 0 < len(scheduler_launch(uid, is_one_node=False)) <= 40


def agent(
    node: str, *arguments: str, ranks: int = 2, settings: Settings | None = None
) -> AgentReport:
    command = describe_command("train.py", arguments, ranks, settings or Settings())
    return AgentReport(node, node, "running", 0, 1, ranks, "", 1, 3, command=command)


def test_nodes_that_were_started_differently_are_named() -> None:
    assert unlike_commands([agent("a", "--lr=1"), agent("b", "--lr=1")]) == ""
    assert unlike_commands([]) == ""
    line = unlike_commands([agent("b", "--lr=2"), agent("a", "--lr=1"), agent("c", "--lr=1")])
    assert line.endswith("different commands: arguments of the script (a, c | b)")
    many = [agent(f"n{number}") for number in range(6)] + [agent("z", ranks=4)]
    assert "ranks per node (n0, n1, n2, n3 and 2 more | z)" in unlike_commands(many)


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        (dataclasses.replace(Settings(), policy=PolicySettings(budget=3)), True),
        (
            dataclasses.replace(
                Settings(), paths=dataclasses.replace(Settings().paths, state_dir="/elsewhere")
            ),
            False,
        ),
    ],
)
def test_settings_of_the_job_count_and_those_of_a_node_do_not(
    changed: Settings, is_told: bool
) -> None:
    line = unlike_commands([agent("a"), agent("b", settings=changed)])
    assert ("settings (a | b)" in line) is is_told


OWN = {"host1", "10.0.0.1"}


@pytest.mark.parametrize(
    ("here", "there", "is_alike"),
    [
        (["--lr", "0.1"], ["--lr", "0.1"], True),
        (["--lr", "0.1"], ["--lr", "0.2"], False),
        (["--lr=0.1"], ["--lr=0.2"], False),
        (["0.1"], ["0.2"], False),
        (["--node_rank", "0", "-v"], ["--node_rank", "1", "-v"], True),
        (["--node-rank=0"], ["--node-rank=1"], True),
        (["--master_addr=localhost"], ["--master_addr=host1"], True),
        (["--name=host1"], ["--name=host2"], True),
        (["--bind", "10.0.0.1"], ["--bind", "10.0.0.2"], True),
        (["--node_rank=0", "--lr=1"], ["--node_rank=1", "--lr=2"], False),
        (["--rank=8"], ["--rank=16"], False),
        (["host1"], ["host2"], False),
    ],
)
def test_what_is_a_nodes_own_does_not_tell_launches_apart(
    here: list[str], there: list[str], is_alike: bool
) -> None:
    own = launch_command("/a/train.py", here, OWN)
    assert (own == launch_command("/b/train.py", there, {"host2", "10.0.0.2"})) is is_alike
    assert own != launch_command("/a/other.py", here, OWN)


def test_no_argument_is_told_to_anybody() -> None:
    assert "hunter2" not in str(agent("a", "--password=hunter2").command)
