"""What the console hears of pauses."""

from __future__ import annotations

import dataclasses
import time

from holdfast_sidecar.launcher.console import PauseNews
from holdfast_sidecar.records.plan import PauseWindow, Plan

PLAN = Plan(1, 1, "running")
UNTIL = 1000.0


def paused(reason: str = "", until: float = UNTIL) -> Plan:
    return dataclasses.replace(PLAN, pause=PauseWindow("ann@desk", reason, 0.0, until))


def test_a_pause_is_told_once_and_so_is_its_end() -> None:
    news = PauseNews()
    assert news.line(None) == news.line(PLAN) == ""
    clock = time.strftime("%H:%M:%S", time.localtime(UNTIL))
    assert news.line(paused("new switch")) == (
        f"paused by ann@desk until {clock}, nothing is done about faults: new switch"
    )
    assert news.line(paused("new switch")) == ""
    assert news.line(None) == ""
    assert news.line(PLAN) == "the job is not paused any more"
    assert news.line(PLAN) == ""


def test_another_end_or_reason_is_told_again() -> None:
    news = PauseNews()
    news.line(paused())
    assert "longer" in news.line(paused("longer"))
    assert news.line(paused("longer", until=5000.0)) != ""
