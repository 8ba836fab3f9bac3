"""The real judge on a virtual clock: no false alarm, every loss told; and it can be wrong."""

from __future__ import annotations

import dataclasses

from bench.detection.presence_figures import heartbeat_figures, node_loss_figures
from bench.detection.presence_names import HEARTBEATS, NODE, NODE_LOSS, SIMULATED
from bench.detection.simulated_heartbeats import Weather, simulate

from holdfast_sidecar.config.settings import SidecarSettings

BEATS = 60_000
SETTINGS = SidecarSettings()


def test_pauses_of_half_a_second_cause_no_false_alarm_and_hide_no_loss() -> None:
    found = simulate(Weather(BEATS), seed=3)
    assert found["false_alarms"] == 0
    assert found["not_declared"] == 0
    assert 0.7 < found["longest_silence_s"] < SETTINGS.node_timeout_s
    assert len(found["nodes_s"]) + len(found["sidecars_s"]) > 20


def test_where_nobody_pauses_a_loss_is_told_within_a_second_and_a_half() -> None:
    found = simulate(Weather(BEATS, pause_s=0.0), seed=4)
    assert min(found["nodes_s"] + found["sidecars_s"]) > 0.5
    assert max(found["nodes_s"] + found["sidecars_s"]) <= 1.5


def test_a_deadline_shorter_than_a_beat_and_a_pause_is_found_out() -> None:
    hasty = dataclasses.replace(SETTINGS, node_timeout_s=0.6)
    assert simulate(Weather(BEATS, settings=hasty), seed=3)["false_alarms"] > 0


def test_pauses_longer_than_promised_are_found_out() -> None:
    assert simulate(Weather(BEATS, pause_s=1.5), seed=3)["false_alarms"] > 0


def test_a_false_alarm_and_a_late_declaration_miss_their_goals() -> None:
    alarm = {**simulate(Weather(2_000), seed=1), "false_alarms": 1}
    (first, *_) = heartbeat_figures([{"row": HEARTBEATS, "what": SIMULATED, **alarm}])
    assert first.met is False
    took = [0.9] * 98 + [1.6] * 2
    rows = [{"row": NODE_LOSS, "what": NODE, "led": False, "declared_s": s} for s in took]
    assert node_loss_figures(rows)[0].met is False
    assert node_loss_figures([*rows[:99], rows[0], rows[0]])[0].met is True
    assert node_loss_figures([])[0].met == "not run"
