from __future__ import annotations

from types import ModuleType

import pytest
from testing.fake_nvml.driver import NO_PERMISSION, NOT_SUPPORTED, FakeNvml

from holdfast_sidecar.components.gpu.nvml.device import Devices
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.readings import Gpu, Signal


@pytest.fixture
def devices(fake_nvml: FakeNvml, pynvml: ModuleType) -> Devices:
    return Devices(pynvml)


def read(devices: Devices, fake: FakeNvml, now_s: float, apart_s: float = 1.0) -> Gpu:
    fake.later(apart_s)
    return devices.read(now_s).gpus[0]


def active(gpu: Gpu) -> dict[Signal, float]:
    return {signal: gpu.values[signal] for signal in METRICS if signal in gpu.values}


def test_activity_is_told_from_the_second_sample_on(devices: Devices, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(0, Signal.TENSOR_ACTIVE, 0.32)
    first = read(devices, fake_nvml, 0.0)
    assert active(first) == {}
    assert not set(first.refused) & {signal.value for signal in METRICS}
    second = read(devices, fake_nvml, 1.0)
    assert set(active(second)) == set(METRICS)
    assert second.value(Signal.TENSOR_ACTIVE) == pytest.approx(0.32)


def test_samples_are_never_closer_than_a_tenth_of_a_second(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.SM_ACTIVE, 0.5)
    read(devices, fake_nvml, 0.0)
    read(devices, fake_nvml, 1.0)
    gpu = read(devices, fake_nvml, 1.05, apart_s=0.0)
    assert gpu.value(Signal.SM_ACTIVE) == 0.5
    assert fake_nvml.asked("nvmlGpmSampleGet") == 16


def test_a_permission_that_is_taken_away_makes_it_absent_and_not_0(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.SM_ACTIVE, 0.9)
    read(devices, fake_nvml, 0.0)
    assert read(devices, fake_nvml, 1.0).value(Signal.SM_ACTIVE) == pytest.approx(0.9)
    fake_nvml.fail("nvmlGpmSampleGet", NO_PERMISSION)
    gpu = read(devices, fake_nvml, 2.0)
    assert active(gpu) == {}
    assert gpu.refused[Signal.SM_ACTIVE.value] == "GPM: Insufficient Permissions"
    assert gpu.value(Signal.POWER) == 72.0
    asked = fake_nvml.asked("nvmlGpmSampleGet")
    for now_s in range(3, 60):
        read(devices, fake_nvml, float(now_s))
    assert fake_nvml.asked("nvmlGpmSampleGet") == asked
    fake_nvml.fail("nvmlGpmSampleGet", 0)
    assert active(read(devices, fake_nvml, 62.0)) == {}
    gpu = read(devices, fake_nvml, 63.0)
    assert gpu.value(Signal.SM_ACTIVE) == pytest.approx(0.9)
    assert Signal.SM_ACTIVE.value not in gpu.refused


def test_a_metric_that_is_not_a_number_or_refused_is_absent_alone(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.SM_ACTIVE, float("nan"))
    fake_nvml.set(0, Signal.SM_OCCUPANCY, -0.5)
    fake_nvml.set(0, Signal.DRAM_ACTIVE, 7.0)
    fake_nvml.set(0, Signal.TENSOR_ACTIVE, 1.02)
    fake_nvml.refuse_metric(0, METRICS[Signal.FP64_ACTIVE], NOT_SUPPORTED)
    read(devices, fake_nvml, 0.0)
    gpu = read(devices, fake_nvml, 1.0)
    assert set(active(gpu)) == {Signal.TENSOR_ACTIVE, Signal.FP32_ACTIVE, Signal.FP16_ACTIVE}
    assert gpu.value(Signal.TENSOR_ACTIVE) == 1.0
    assert gpu.refused[Signal.FP64_ACTIVE.value] == "GPM metric 11: Not Supported"
    assert "told what can't be" in gpu.refused[Signal.SM_ACTIVE.value]


def test_a_sample_from_long_ago_is_given_up(devices: Devices, fake_nvml: FakeNvml) -> None:
    read(devices, fake_nvml, 0.0)
    read(devices, fake_nvml, 1.0)
    assert active(read(devices, fake_nvml, 100.0)) == {}
    assert active(read(devices, fake_nvml, 101.0)) != {}


def test_samples_are_given_back(devices: Devices, fake_nvml: FakeNvml) -> None:
    read(devices, fake_nvml, 0.0)
    devices.close()
    assert fake_nvml.asked("nvmlGpmSampleAlloc") == fake_nvml.asked("nvmlGpmSampleFree") == 16


def test_a_lost_gpu_comes_back_with_new_samples(devices: Devices, fake_nvml: FakeNvml) -> None:
    read(devices, fake_nvml, 0.0)
    read(devices, fake_nvml, 1.0)
    fake_nvml.lose(0)
    assert read(devices, fake_nvml, 2.0).lost
    fake_nvml.lose(0, 0)
    assert active(read(devices, fake_nvml, 3.0)) == {}
    assert set(active(read(devices, fake_nvml, 4.0))) == set(METRICS)
