"""A healthy job is never called hung, whatever healthy jobs do; and one that hangs is."""

from __future__ import annotations

import pytest
from tests.unit.ranks.simulated_training import Habits, Training, watch

from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.records.findings import Kind

OFTEN = Habits(
    evaluates_every=900, saves_every=500, uploads_every=300, stalls_every=400, compiles_every=2_000
)
"""Whatever happens now and then, some ten times as often."""


def assert_no_alarm(seed: int, habits: Habits, steps: int) -> None:
    training = Training(seed, habits)
    found = [finding for _, finding in watch(training, steps, StallSettings())]
    assert training.step >= steps
    assert [finding for finding in found if finding.acts or finding.kind is Kind.HANG] == []
    told = {finding.kind for finding in found}
    assert told >= {Kind.STALL, Kind.DATA_STALL}, "uploads and stalls were not even told"


def test_no_hang_and_nothing_to_act_on_in_ten_thousand_healthy_steps() -> None:
    assert_no_alarm(seed=1, habits=OFTEN, steps=10_000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_nor_in_a_hundred_thousand(seed: int) -> None:
    assert_no_alarm(seed, Habits(), steps=100_000)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_job_is_called_hung_once_it_hangs(seed: int) -> None:
    training = Training(seed, Habits(hangs_at=2_000))
    found = list(watch(training, 3_000, StallSettings(), lasts_s=100.0))
    first_told_s = min(at_s for at_s, _ in found)
    hang_s = min(at_s for at_s, finding in found if finding.kind is Kind.HANG)
    assert {tuple(f.ranks) for _, f in found if f.kind is Kind.HANG} == {(0,)}
    began_s = training.ranks[0].since_s
    assert first_told_s - began_s < 1.2
    assert hang_s - began_s < 2.6
