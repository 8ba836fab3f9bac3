"""When a launch ends: from its setting, squeue's answer, or Slurm's environment."""

from __future__ import annotations

import time

import pytest

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.launcher.arguments import parse_left, read_left_s
from holdfast_sidecar.launcher.plan_watch import Reporter
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore

NOW_S = 1_000_000.0
SLURM = {"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": "1003600"}


def never(job: str) -> str:
    raise AssertionError(f"squeue was asked for {job}")


def test_the_setting_counts_before_what_slurm_says() -> None:
    assert read_left_s(PolicySettings(time_limit_s=60.0), SLURM, NOW_S, never) == 60


def silent(job: str) -> str:
    return ""


@pytest.mark.parametrize("off_s", [-3600.0, 0.0, 3600.0, 7200.0])
def test_slurm_itself_says_what_is_left_however_far_off_this_node_s_clock_is(off_s: float) -> None:
    asked: list[str] = []

    def squeue(job: str) -> str:
        asked.append(job)
        return "59:50\n"

    assert read_left_s(PolicySettings(), SLURM, NOW_S + off_s, squeue) == 3590
    assert asked == ["17"]


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_after_the_start_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    left_s = read_left_s(PolicySettings(), SLURM, time.time(), lambda job: "59:50")
    now_unix_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_unix_s + jump_s)
    report = AgentReport("a", "a-1", "joining", -1, 0, 1, "127.0.0.1", 1, 1, left_s=left_s)
    reporter = Reporter(MemoryStore(MemoryServer()), report, heartbeat_s=60.0)
    reporter.start()
    reporter.close(10.0)
    assert 3580 < reporter.report.left_s <= 3590


def test_where_squeue_does_not_answer_the_environment_says_when_the_job_ends() -> None:
    assert read_left_s(PolicySettings(), SLURM, NOW_S, silent) == 3600
    assert read_left_s(PolicySettings(), {**SLURM, "SLURM_JOB_ID": ""}, NOW_S, never) == 3600


@pytest.mark.parametrize("off_s", [-3600.0, 7200.0])
def test_no_limit_is_taken_from_the_environment_where_the_clock_is_far_off(off_s: float) -> None:
    told = SLURM | {"SLURM_JOB_START_TIME": "1000000"}
    assert read_left_s(PolicySettings(), told, NOW_S + 10, silent) == 3590
    assert read_left_s(PolicySettings(), told, NOW_S + off_s, silent) == 0


def test_a_job_without_a_limit_has_none_whatever_the_environment_says() -> None:
    assert read_left_s(PolicySettings(), SLURM, NOW_S, lambda job: "UNLIMITED\n") == 0


def test_the_component_of_a_heterogeneous_job_that_ends_first_counts() -> None:
    assert read_left_s(PolicySettings(), SLURM, NOW_S, lambda job: "2:00:00\n59:50\n") == 3590


def test_a_job_whose_time_is_over_is_none_without_a_limit() -> None:
    assert 0 < read_left_s(PolicySettings(), SLURM, NOW_S, lambda job: "0:00\n") < 1


def test_outside_of_slurm_nobody_is_asked() -> None:
    assert read_left_s(PolicySettings(), {}, NOW_S, never) == 0


def test_no_answer_is_no_limit() -> None:
    assert read_left_s(PolicySettings(), {"SLURM_JOB_ID": "17"}, NOW_S, lambda job: "") == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3:04", 184),
        ("2:03:04\n", 7384),
        ("1-02:03:04", 93784),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_the_time_that_is_left_as_squeue_writes_it(text: str, seconds: float | None) -> None:
    assert parse_left(text) == seconds
