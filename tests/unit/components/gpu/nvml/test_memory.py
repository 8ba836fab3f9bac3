"""GPUs that fell away are known beyond the child that saw them."""

from __future__ import annotations

from holdfast_sidecar.components.gpu.nvml.process import GONE, known_by, with_known
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal


def gpu(index: int, uuid: str = "", lost: str = "") -> Gpu:
    values = {} if lost else {Signal.POWER: 300.0}
    return Gpu(index, uuid or f"GPU-{index}", "Twin", f"0000:0{index}:00.0", values, lost=lost)


TWO = GpuReading(True, "570.1", (gpu(0), gpu(1)))
KNOWN = known_by(TWO, {})


def test_a_whole_reading_stays_as_it_is_and_says_how_many_are_expected() -> None:
    reading = with_known(TWO, KNOWN)
    assert reading.gpus == TWO.gpus
    assert reading.expected == 2


def test_one_that_a_new_child_never_saw_is_lost_by_name() -> None:
    reading = with_known(GpuReading(True, "570.1", (gpu(0),), expected=1), KNOWN)
    assert [(gpu.uuid, gpu.lost) for gpu in reading.gpus] == [("GPU-0", ""), ("GPU-1", GONE)]
    assert reading.gpus[1].values == {}
    assert reading.expected == 2


def test_one_that_can_not_be_opened_gets_the_name_that_it_had() -> None:
    nameless = Gpu(1, "", "", "", lost="GPU is lost")
    reading = with_known(GpuReading(True, "570.1", (gpu(0), nameless)), KNOWN)
    assert [(gpu.uuid, gpu.lost) for gpu in reading.gpus] == [
        ("GPU-0", ""),
        ("GPU-1", "GPU is lost"),
    ]


def test_more_are_expected_where_that_was_set() -> None:
    assert with_known(GpuReading(True, "570.1", (gpu(0),), expected=8), KNOWN).expected == 8
