"""Faults planted in a driver, read by nvidia-ml-py, tied to their ranks and found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from testing.fake_nvml import layout
from testing.fake_nvml.driver import STATE_VARIABLE, FakeNvml
from tests.fake_nvml import fresh_pynvml
from tests.unit.components.gpu.nodes import company, seat
from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.gpu.component import GpuWatch
from holdfast_sidecar.components.gpu.nvml.device import Devices
from holdfast_sidecar.components.gpu.ownership import GpuProcess, GpuUsers
from holdfast_sidecar.components.gpu.readings import GpuReading, GpuUser, Signal
from holdfast_sidecar.records.findings import Finding

GIB = 1 << 30
WATCHED_S = 80
PLANTED_S = 10


@dataclass
class Around:
    """Rank N computes on GPU N, with pid 1000 + N; pid 7777 is a stranger."""

    def read(self, reading: GpuReading) -> GpuUsers:
        stranger = GpuProcess(7777, "miner", 5, (1500,))
        return company(*(seat(rank) for rank in range(8)), processes=[stranger])


def furnish(fake: FakeNvml) -> None:
    for index in range(8):
        fake.set(index, Signal.BUSY, 1.0)
        fake.set(index, Signal.MEMORY_USED, 60 * GIB)
        fake.users(index, [GpuUser(1000 + index, 60 * GIB)])


def watch(
    fake: FakeNvml, pynvml: ModuleType, at: Callable[[FakeNvml, int], None]
) -> tuple[GpuWatch, list[Finding]]:
    """What stands after 80 seconds, the fault having come at second 10."""
    furnish(fake)
    devices, kept = Devices(pynvml), GpuWatch(Around())
    found: list[Finding] = []
    for second in range(WATCHED_S):
        for index in range(8):
            if second and not fake_is_lost(kept, index):
                fake.add(index, Signal.ENERGY, 500.0)
        if second >= PLANTED_S:
            at(fake, second - PLANTED_S)
        fake.later(1.0)
        found = kept.follow(devices.read(100.0 + second), {}, moment(100.0 + second))
        assert second >= PLANTED_S or not found
    return kept, found


def fake_is_lost(kept: GpuWatch, index: int) -> bool:
    return any(gpu.lost for gpu in kept.scene.reading.gpus if gpu.index == index)


def always(signal: Signal, value: float) -> Callable[[FakeNvml, int], None]:
    return lambda fake, _: fake.set(3, signal, value)


def growing(signal: Signal, per_s: float) -> Callable[[FakeNvml, int], None]:
    return lambda fake, _: fake.add(3, signal, per_s)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (lambda fake, t: fake.lose(3) if t == 0 else None, ("gpu_lost", "gpu3")),
        (lambda fake, t: fake.remove(3) if t == 0 else None, ("gpu_lost", "gpu3")),
        (always(Signal.RECOVERY_ACTION, 1), ("gpu_fault", "gpu3-recovery")),
        (always(Signal.REMAP_PENDING, 1), ("gpu_memory_failing", "gpu3-remap-pending")),
        (always(Signal.BANKS_NONE_LEFT, 1), ("gpu_memory_failing", "gpu3-no-spare-rows")),
        (growing(Signal.ECC_CORRECTED, 4600), ("ecc_storm", "gpu3")),
        (growing(Signal.THROTTLED_HARDWARE_THERMAL, 0.3), ("gpu_throttled", "gpu3-hot")),
        (always(Signal.PCIE_GENERATION, 2), ("gpu_link_degraded", "gpu3-pcie-speed")),
        (lambda fake, _: fake.set(3, 165, 0, link=5), ("gpu_link_degraded", "gpu3-nvlinks")),
        (growing(Signal.PCIE_REPLAYS, 2), ("gpu_link_degraded", "gpu3-pcie-replays")),
        (
            lambda fake, _: fake.users(3, [GpuUser(1003, 60 * GIB), GpuUser(7777, GIB)]),
            ("gpu_shared", "gpu3-pid7777"),
        ),
    ],
)
def test_a_fault_of_one_gpu_is_found_and_tied_to_its_rank(
    plant: Callable[[FakeNvml, int], None],
    told: tuple[str, str],
    fake_nvml: FakeNvml,
    pynvml: ModuleType,
) -> None:
    _, found = watch(fake_nvml, pynvml, plant)
    assert [(one.kind.value, one.what) for one in found] == [told]
    assert found[0].ranks == [3]
    assert found[0].gpu.startswith("GPU-00000003")


def test_a_whole_node_at_its_power_limit_finds_nothing_and_its_energy_is_counted(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    def at_the_limit(fake: FakeNvml, _: int) -> None:
        for index in range(8):
            fake.add(index, Signal.THROTTLED_POWER, 0.9)

    kept, found = watch(fake_nvml, pynvml, at_the_limit)
    assert found == []
    growth = kept.scene.history.track(kept.scene.reading.gpus[0].uuid).growth(Signal.ENERGY, 60)
    assert growth is not None
    assert growth.per_s == pytest.approx(500)


@pytest.mark.parametrize("profile", [layout.BLACKWELL, layout.AMPERE, layout.VOLTA])
def test_healthy_gpus_of_every_generation_are_nothing_to_tell(
    profile: layout.Profile,
    tmp_path: Path,
    nvml_library: Path,
    monkeypatch: pytest.MonkeyPatch,
    fake_nvml: FakeNvml,
) -> None:
    other = FakeNvml.create(tmp_path / "other.state", profile=profile)
    monkeypatch.setenv(STATE_VARIABLE, str(other.path))
    _, found = watch(other, fresh_pynvml(nvml_library), lambda fake, _: None)
    assert found == []
    other.close()
