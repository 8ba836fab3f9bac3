"""Who hears of the ends of steps, and that nobody pays once nobody listens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import environment, page
from holdfast.guard import Guard
from holdfast.patches import devices
from holdfast.recording.recorder import Recorder
from holdfast.recording.step_ends import StepEnds


def recorder() -> Recorder:
    return Recorder(bytearray(page.PAGE_SIZE), attempt=0)


def test_each_listener_hears_until_it_has_heard_enough() -> None:
    heard: list[tuple[str, int]] = []

    def until(name: str, last: int) -> Any:
        def listen(step: int) -> bool:
            heard.append((name, step))
            return step < last

        return listen

    rank = recorder()
    StepEnds(rank, Guard(lambda: None), [("a", until("a", 1)), ("b", until("b", 2))]).start()
    for step in (1, 2, 3):
        rank.end_step(step)
    assert heard == [("a", 1), ("b", 1), ("b", 2)]
    assert rank.on_step is None


def test_one_that_fails_is_counted_and_hears_no_more() -> None:
    errors: list[int] = []
    heard: list[int] = []

    def fails(step: int) -> bool:
        raise RuntimeError("ours")

    def listens(step: int) -> bool:
        heard.append(step)
        return True

    rank = recorder()
    guard = Guard(lambda: errors.append(1))
    StepEnds(rank, guard, [("fails", fails), ("listens", listens)]).start()
    for step in (1, 2):
        rank.end_step(step)
    assert (len(errors), heard) == (1, [1, 2])


@pytest.mark.torch
def test_on_a_cpu_where_no_operations_are_told_a_step_pays_for_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.setenv(environment.FLOPS, "0")

    rank = recorder()
    devices.install(torch, rank, Guard(lambda: None))
    for step in range(1, 8):
        rank.enter(page.Phase.FORWARD)
        rank.end_step(step)
    assert rank.on_step is None
    assert rank.on_phase is None


@pytest.mark.torch
def test_a_torch_without_its_private_parts_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.FLOPS, "0")
    rank, errors = recorder(), []
    cuda = SimpleNamespace(is_initialized=lambda: False)
    bare: Any = SimpleNamespace(_C=SimpleNamespace(), cuda=cuda)
    devices.install(bare, rank, Guard(lambda: errors.append(1)))
    for step in range(1, 8):
        rank.end_step(step)
    assert (rank.on_step, errors) == (None, [])
