"""Each call to the driver stands on the board while it lasts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_sidecar.components.gpu.nvml.child_io import SharedStatus
from holdfast_sidecar.components.gpu.nvml.process import ChildStatus, make_board, read_board
from holdfast_sidecar.components.gpu.nvml.query import Announcing


@pytest.fixture
def board() -> Iterator[int]:
    made = make_board()
    yield made
    os.close(made)


class Handle:
    """As ctypes makes them: a new object for each question."""


def twin(board: int, seen: list[str]) -> Any:
    """A module whose functions look at the board while they run."""

    def look(*_: Any) -> None:
        seen.append(read_board(board).asking)

    def handle(index: int) -> Handle:
        look()
        return Handle()

    return SimpleNamespace(
        NVML_SUCCESS=0,
        NVMLError=KeyError,
        nvmlInit=look,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetPowerUsage=look,
        _nvmlGetFunctionPointer=lambda name: look,
    )


def test_every_call_is_noted_with_its_gpu(board: int) -> None:
    seen: list[str] = []
    nvml = Announcing(twin(board, seen), SharedStatus(board))
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
    nvml.nvmlDeviceGetPowerUsage(handles[1])
    nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")(handles[0], 3)
    assert seen == [
        "nvmlInit",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetPowerUsage of GPU 1",
        "nvmlDeviceGetFieldValues of GPU 0",
    ]


def test_what_is_no_call_is_handed_through(board: int) -> None:
    nvml = Announcing(twin(board, []), SharedStatus(board))
    assert (nvml.NVML_SUCCESS, nvml.NVMLError) == (0, KeyError)
    with pytest.raises(AttributeError):
        nvml.nvmlOfTheFuture  # noqa: B018
    assert read_board(board) == ChildStatus()


def test_an_answer_is_a_beat_and_clears_the_board(board: int) -> None:
    at = SharedStatus(board)
    at.about_to("x" * 500)
    assert read_board(board).asking == "x" * 112
    at.alive()
    at.alive()
    note = read_board(board)
    assert (note.beats, note.asking) == (2, "")
    assert note.at_s > 0.0
