"""When a launch ends, from its setting, Slurm's environment, or squeue's answer."""

from __future__ import annotations

import pytest

from holdfast_sidecar.launcher.time_limit import parse_left, read_end
from holdfast_sidecar.settings import PolicySettings

NOW_S = 1_000_000.0
SLURM = {"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": "1003600"}


def never(job: str) -> str:
    raise AssertionError(f"squeue was asked for {job}")


def test_the_setting_counts_before_what_slurm_says() -> None:
    assert read_end(PolicySettings(time_limit_s=60.0), SLURM, NOW_S, never) == NOW_S + 60


def test_slurm_tells_its_jobs_when_they_end() -> None:
    assert read_end(PolicySettings(), SLURM, NOW_S, never) == 1_003_600


def test_an_older_slurm_is_asked_once() -> None:
    asked: list[str] = []

    def squeue(job: str) -> str:
        asked.append(job)
        return "1:00:00\n"

    assert read_end(PolicySettings(), {"SLURM_JOB_ID": "17"}, NOW_S, squeue) == NOW_S + 3600
    assert asked == ["17"]


def test_outside_of_slurm_nobody_is_asked() -> None:
    assert read_end(PolicySettings(), {}, NOW_S, never) == 0


def test_no_answer_is_no_limit() -> None:
    assert read_end(PolicySettings(), {"SLURM_JOB_ID": "17"}, NOW_S, lambda job: "") == 0


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
