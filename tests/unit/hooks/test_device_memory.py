"""What a rank holds of its device's memory, told once a second."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.hooks.pretend_cuda import PretendCuda

from holdfast.contract import page
from holdfast.contract.page import Word
from holdfast.recording.device_memory import DeviceMemory
from holdfast.recording.recorder import Recorder

TOLD = (
    Word.MEMORY_ALLOCATED,
    Word.MEMORY_RESERVED,
    Word.MEMORY_PEAK,
    Word.MEMORY_TOTAL,
    Word.MEMORY_RETRIES,
)


def counts(allocated: int, reserved: int, peak: int, retries: int = 0) -> dict[str, Any]:
    return {
        "allocated_bytes": {"all": {"current": allocated, "peak": allocated}},
        "reserved_bytes": {"all": {"current": reserved, "peak": peak}},
        "num_alloc_retries": retries,
    }


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(bytearray(page.PAGE_SIZE), attempt=0)


@pytest.fixture
def cuda() -> PretendCuda:
    return PretendCuda()


@pytest.fixture
def memory(cuda: PretendCuda, recorder: Recorder) -> DeviceMemory:
    return DeviceMemory(cuda, recorder, lambda: int(cuda.now_us * 1000))


def told(recorder: Recorder) -> list[int]:
    return [recorder.word(word) for word in TOLD]


def test_what_the_allocator_counts_is_told(
    memory: DeviceMemory, cuda: PretendCuda, recorder: Recorder
) -> None:
    cuda.counts = counts(5, 6, 7, 1)
    assert memory.end_step()
    assert told(recorder) == [5, 6, 7, 80 * 2**30, 1]


def test_it_is_asked_once_a_second_however_short_the_steps(
    memory: DeviceMemory, cuda: PretendCuda
) -> None:
    cuda.counts = counts(1, 1, 1)
    for _ in range(2500):
        memory.end_step()
        cuda.pass_time(1000)
    assert cuda.counted == 3


def test_a_peak_that_the_script_resets_stays(
    memory: DeviceMemory, cuda: PretendCuda, recorder: Recorder
) -> None:
    for peak in (9, 4):
        cuda.counts = counts(1, 2, peak)
        memory.end_step()
        cuda.pass_time(2e6)
    assert recorder.word(Word.MEMORY_PEAK) == 9


def test_a_rank_without_a_device_says_nothing(
    memory: DeviceMemory, cuda: PretendCuda, recorder: Recorder
) -> None:
    cuda.started = False
    assert not memory.end_step()
    assert told(recorder) == [0] * 5
