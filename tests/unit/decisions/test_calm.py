"""When a sidecar rests longer than usual, and how long."""

from __future__ import annotations

import pytest

from holdfast_sidecar.decisions.calm import calm_s
from holdfast_sidecar.decisions.checkpointing import margin_s
from holdfast_sidecar.settings import OVERSLEPT_S, SidecarSettings


@pytest.mark.parametrize(("usual_s", "calm"), [(0.5, 0.8), (0.3, 0.48), (0.9, 1.0), (1.9, 1.9)])
def test_it_rests_longer_but_never_so_long_that_it_takes_itself_for_asleep(
    usual_s: float, calm: float
) -> None:
    assert calm_s(usual_s) == pytest.approx(calm)
    assert calm_s(usual_s) < OVERSLEPT_S


def test_a_step_that_is_heard_of_late_still_leaves_time_for_a_checkpoints_order() -> None:
    usual = SidecarSettings()
    assert calm_s(usual.tick_s) + calm_s(usual.heartbeat_s) < margin_s(usual, 0)
