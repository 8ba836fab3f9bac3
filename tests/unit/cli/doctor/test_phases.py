"""What `doctor` says of the limits that are learnt from running jobs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.contract.identity import read_identity
from holdfast.contract.page import Identity, Record
from holdfast.rank.claim import claim
from holdfast.recording.recorder import Recorder
from holdfast_sidecar.cli.doctor.command import RunningJob, check_phases, describe_rule, judge_jobs
from holdfast_sidecar.config.settings import PathSettings, Settings, StallSettings
from holdfast_sidecar.ranks.history import PhaseDurations


def pace(steps: int, forward_s: float) -> PhaseDurations:
    forward_us = int(forward_s * 1e6)
    record = Record(1, 0, forward_us, 1000, forward_us, 1000, 1000, 1000, 0, 0, 0.0)
    return PhaseDurations().after([record] * steps)


def told(stall: StallSettings, *paces: PhaseDurations) -> list[tuple[str, str]]:
    found = judge_jobs([RunningJob("llm", "a", list(paces))], stall)
    return [(check.verdict, check.line) for check in found]


def test_the_slowest_rank_sets_each_limit() -> None:
    ((verdict, line),) = told(StallSettings(), pace(50, 1.0), pace(50, 2.0))
    assert verdict == "ok"
    forward = float(line.partition(" s in forward")[0].rpartition(" ")[2])
    assert 6.0 <= forward <= 7.5  # a sketch's quantile is up to a quarter too high
    assert "0.9 s in data" in line


def test_phases_longer_than_the_patience_with_silence_fail() -> None:
    assert told(StallSettings(), pace(50, 60.0))[0][0] == "ok"
    ((verdict, line),) = told(StallSettings(act_after_s=120.0), pace(50, 60.0))
    assert verdict == "fail"
    assert "stall.act_after_s = 120 s is not above that" in line
    assert told(StallSettings(act_after_s=900.0), pace(50, 60.0))[0][0] == "ok"


def test_a_job_that_has_just_begun_tells_nothing() -> None:
    assert told(StallSettings(), pace(4, 1.0)) == []
    assert told(StallSettings()) == []


def test_the_one_number_that_overrides_is_named() -> None:
    assert "99% of its steps took" in describe_rule(StallSettings()).line
    assert "stall.limit_s = 30 s" in describe_rule(StallSettings(limit_s=30.0)).line
    ((_, line),) = told(StallSettings(limit_s=30.0), pace(50, 1.0))
    assert "30 s in forward" in line


def test_living_ranks_are_read_from_their_pages_and_dead_ones_are_not(tmp_path: Path) -> None:
    settings = Settings(paths=PathSettings(shm_dir=str(tmp_path)))
    assert len(check_phases(settings)) == 1
    directory = tmp_path / f"holdfast-{os.getuid()}" / "llm" / "a"
    directory.mkdir(mode=0o700, parents=True)
    me = read_identity()
    assert me is not None
    identity = Identity(me.pid, me.start_ticks, 0, 1, 0, 0, 1, time.monotonic_ns(), "a", "llm")
    claimed = claim(str(directory), identity)
    assert claimed is not None
    recorder = Recorder(claimed.memory, 0)
    for step in range(1, 20):
        recorder.end_step(step)
    _, job = check_phases(settings)
    assert "job llm on a: declared after 0.9 s in data" in job.line
    recorder.detach()
    claimed.let_go()
