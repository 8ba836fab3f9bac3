from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_sidecar.components.gpu.nvml.probe import GpuProbe
from holdfast_sidecar.components.host import thermal
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.linux.probe_runner import Patient, SilentError
from holdfast_sidecar.startup import Site
from holdfast_sidecar.wiring import assemble


@dataclass
class Asked:
    """A probe that does what the test says."""

    answer: Callable[[], int]
    name: str = "asked"

    def read(self, now_s: float) -> int:
        return self.answer()


def test_a_call_that_hangs_is_stale_after_the_deadline_and_not_asked_again() -> None:
    gate, asked = threading.Event(), []

    def hang() -> int:
        asked.append(True)
        gate.wait()
        return 7

    probe = Patient(Asked(hang), deadline_s=0.01)
    for _ in range(3):
        with pytest.raises(SilentError, match="asked has not answered"):
            probe.read(0.0)
    assert len(asked) == 1
    gate.set()
    late = threading.Event()
    while not late.wait(0.001):
        try:
            assert probe.read(0.0) == 7
            break
        except SilentError:
            continue


def test_an_error_reaches_the_caller_and_the_next_question_is_asked() -> None:
    answers: Iterator[int | Exception] = iter([AttributeError("an older pynvml"), 7])

    def answer() -> int:
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    probe = Patient(Asked(answer), deadline_s=5.0)
    with pytest.raises(AttributeError, match="older"):
        probe.read(0.0)
    assert probe.read(5.0) == 7


def test_neither_a_driver_nor_a_file_system_can_stop_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(os, "statvfs", lambda _: answers.wait(30))
    monkeypatch.setattr(thermal, "read_sensors", lambda _: answers.wait(30))
    site = Site("job", "a", Paths(tmp_path, tmp_path), Settings())
    nobody: Any = None
    silent: Any = SimpleNamespace(changed=threading.Event())
    loop = assemble(site, silent, nobody, nobody, "")
    host = loop.machine.host.read(0.0)
    answers.set()
    assert host is not None
    assert set(host.silent_rooms) == {"shm", "state"}
    assert isinstance(loop.machine.gpu.probe, GpuProbe)
