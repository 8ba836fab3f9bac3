"""How well a real rank uses its machine, from its page to what is told of the job."""

from __future__ import annotations

import dataclasses
from statistics import median

import pytest
from tests.integration.hooks.test_flops import BATCH, BEGIN, LENGTH, LOOP, PARAMETERS
from tests.unit.ranks.scene import history, look, moment

from holdfast.contract import page
from holdfast.contract.page import RecordFlag
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.performance.stragglers.efficiency import NO_PEAK, EfficiencyWatch
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.ranks.probe import report_rank
from holdfast_sidecar.records.steps import Efficiency, StepLine

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

PEAK = 1e11
"""Of one core, roughly."""

NOTHING = StepLine(*[0] * len(StepLine._fields))


def judge(stage) -> tuple[Efficiency, float]:
    """The efficiency of the only rank, and what a step took it, seconds."""
    seen = dataclasses.replace(look(1.0), words=page.parse_words(stage.read()))
    report = report_rank(history(seen), Settings(), moment(1.0))
    measured = [one for one in stage.records() if not one.flags & RecordFlag.WHOLE_ONLY]
    step_us = median(one.total_us for one in measured)
    line = NOTHING._replace(steps=len(measured), total=round(step_us), waits_seen=1)
    frame = StepFrame(0, 1, {0: line})
    watch = EfficiencyWatch()
    watch.follow(frame, {0: RankPlace(0, "a")}, ranks=1)
    return watch.tell({0: report}), step_us / 1e6


def test_the_utilisation_of_a_real_job_is_that_of_the_formula(stage) -> None:
    env = stage.environment(HOLDFAST_PEAK_FLOPS=str(PEAK))
    ended = stage.run(BEGIN + LOOP, env)
    assert ended.code == 0, ended.err
    found, step_s = judge(stage)
    assert found.mfu == pytest.approx(6 * PARAMETERS * BATCH * LENGTH / step_s / PEAK, rel=0.05)
    assert found.hfu is None


def test_without_a_peak_nothing_is_made_up(stage) -> None:
    ended = stage.run(BEGIN + LOOP)
    assert ended.code == 0, ended.err
    found, _ = judge(stage)
    assert (found.mfu, found.hfu) == (None, None)
    assert NO_PEAK in found.unknown
