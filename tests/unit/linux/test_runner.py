from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from holdfast_sidecar.linux.probe_runner import PartlyReadError, ProbeRunner


@dataclass
class Scripted:
    """A probe that answers or raises by script."""

    answers: list[int | Exception]
    name: str = "scripted"
    asked: list[float] = field(default_factory=list)

    def read(self, now_s: float) -> int:
        self.asked.append(now_s)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_probe_is_asked_in_its_own_rhythm() -> None:
    probe = Scripted([1, 2])
    runner = ProbeRunner(probe, every_s=5.0)
    assert [runner.read(now_s) for now_s in (0.0, 0.5, 4.9, 5.0, 9.0)] == [1, 1, 1, 2, 2]
    assert probe.asked == [0.0, 5.0]


def test_a_failure_is_counted_told_once_and_leaves_no_stale_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = ProbeRunner(Scripted([7, OSError("gone"), OSError("gone"), 8]), every_s=1.0)
    with caplog.at_level(logging.INFO):
        assert [runner.read(float(now)) for now in range(3)] == [7, None, None]
        assert (runner.health.is_up, runner.health.failures) == (False, 2)
        assert runner.health.failing_since_s == 1.0
        assert "OSError: gone" in runner.health.error
        assert runner.read(3.0) == 8
    assert runner.health.is_up
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_what_could_be_read_beside_what_could_not_is_told_and_the_probe_fails_all_the_same() -> (
    None
):
    runner = ProbeRunner(Scripted([PartlyReadError(7, "port 1 says 'what?'"), 8]), every_s=1.0)
    assert runner.read(0.0) == 7
    assert (runner.health.is_up, runner.health.error) == (False, "port 1 says 'what?'")
    assert runner.read(1.0) == 8
    assert runner.health.is_up
