from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from testing.fake_nvml import layout
from testing.fake_nvml import layout as profiles
from testing.fake_nvml.driver import (
    DOUBLE,
    NO_PERMISSION,
    NOT_SUPPORTED,
    PLACES,
    RESET_REQUIRED,
    STATE_VARIABLE,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeNvml,
)
from tests.fake_nvml import compiled, fresh_pynvml

from holdfast_sidecar.components.gpu.nvml.device import (
    Devices,
    DriverReplacedError,
    NvmlDriverError,
)
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.nvml.signals import ROWS
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal

NEWER_CALLS = (
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlGpmQueryDeviceSupport",
)


@pytest.fixture
def devices(fake_nvml: FakeNvml, pynvml: ModuleType) -> Devices:
    return Devices(pynvml)


def read_again(devices: Devices, fake: FakeNvml, now_s: float = 1.0) -> Gpu:
    """GPU 0 at the second reading, when its activity is known too."""
    devices.read(0.0)
    fake.later(now_s)
    return devices.read(now_s).gpus[0]


def test_who_the_gpus_are(devices: Devices, fake_nvml: FakeNvml) -> None:
    fake_nvml.users(2, [4711, GpuUser(4712)])
    reading = devices.read(7.0)
    assert (reading.is_present, reading.driver, reading.expected) == (True, "580.95.05", 8)
    assert (len(reading.gpus), reading.read_at_s) == (8, 7.0)
    gpu = reading.gpus[2]
    assert (gpu.index, gpu.uuid) == (2, "GPU-00000002-1111-2222-3333-444444444444")
    assert (gpu.model, gpu.pci, gpu.lost) == ("NVIDIA H100 80GB HBM3", "0000:27:00.0", "")
    assert gpu.users == (GpuUser(4711, 1 << 30), GpuUser(4712))
    assert gpu.value(Signal.PROCESSES) == 2
    assert (gpu.is_mig, gpu.is_ecc_on, gpu.is_persistent) == (False, True, True)


def test_every_signal_has_a_row_or_is_told_by_gpm_or_by_the_processes() -> None:
    told = [row.signal for row in ROWS] + [*METRICS, Signal.PROCESSES]
    assert sorted(told) == sorted(Signal)


UNUSUAL = {
    Signal.BUSY: 0.63,
    Signal.MEMORY_TEMPERATURE: 71.0,
    Signal.TEMPERATURE: 66.0,
    Signal.TEMPERATURE_MARGIN: -4.0,
    Signal.PERFORMANCE_STATE: 2.0,
    Signal.SRAM_THRESHOLD_EXCEEDED: 1.0,
    Signal.REMAP_PENDING: 1.0,
    Signal.REMAP_FAILURE: 1.0,
    Signal.RETIREMENT_PENDING: 1.0,
    Signal.POWER: 684.321,
    Signal.POWER_LIMIT: 650.0,
    Signal.THROTTLED_POWER: 12.25,
    Signal.THROTTLE_REASONS: 0x44,
    Signal.RECOVERY_ACTION: 3.0,
    Signal.SM_CLOCK: 1.335e9,
    Signal.SM_CLOCK_MOST: 1.98e9,
    Signal.MEMORY_CLOCK: 2.619e9,
    Signal.PCIE_WIDTH: 8.0,
    Signal.PCIE_WIDTH_MOST: 16.0,
    Signal.PCIE_GENERATION: 3.0,
    Signal.PCIE_GENERATION_MOST: 5.0,
    Signal.NVLINKS_EXPECTED: 18.0,
    Signal.C2C_LINKS: 10.0,
    Signal.NVLINK_SPEED: 26_562e6,
    Signal.NVLINK_SENT: 5.0 * 1024**3,
    Signal.FABRIC_STATE: 2.0,
    **dict.fromkeys(METRICS, 0.37),
}


@pytest.mark.parametrize("signal", PLACES)
def test_every_signal_arrives_in_base_units(
    devices: Devices, fake_nvml: FakeNvml, signal: Signal
) -> None:
    value = UNUSUAL.get(signal, 4096.0)
    fake_nvml.set(0, signal, value)
    assert read_again(devices, fake_nvml).value(signal) == pytest.approx(value)


def test_a_sum_over_all_links_and_the_slowest_of_the_active_ones(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    for link in range(18):
        fake_nvml.set(0, 163, 10 + link, link)
    fake_nvml.set(0, 165, 0, link=4)
    fake_nvml.set(0, 164, 0, link=4)
    fake_nvml.set(0, 164, 13_281, link=7)
    gpu = devices.read(0.0).gpus[0]
    assert gpu.value(Signal.NVLINK_CRC) == sum(range(10, 28))
    assert (gpu.value(Signal.NVLINKS_ACTIVE), gpu.value(Signal.NVLINKS_EXPECTED)) == (17, 18)
    assert gpu.value(Signal.NVLINK_SPEED) == 13_281e6


def test_a_link_that_falls_silent_does_not_make_the_sum_fall_back(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    for link in range(18):
        fake_nvml.set(0, 161, 2, link)
    assert devices.read(0.0).gpus[0].value(Signal.NVLINK_REPLAYS) == 36
    fake_nvml.refuse_field(0, 161, NOT_SUPPORTED, link=3)
    fake_nvml.set(0, 161, 3, link=4)
    assert devices.read(10.0).gpus[0].value(Signal.NVLINK_REPLAYS) == 37


def test_links_to_its_own_processor_are_counted_apart_from_nvlinks(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    assert "Not Supported" in devices.read(0.0).gpus[0].refused[Signal.C2C_ACTIVE.value]
    fake_nvml.set(0, 170, 10)
    for link in range(10):
        for field, value in ((171, link != 3), (231, 2), (232, 30)):
            fake_nvml.set(0, field, value, link)
    gpu = devices.read(60.0).gpus[0]
    assert (gpu.value(Signal.C2C_LINKS), gpu.value(Signal.C2C_ACTIVE)) == (10, 9)
    assert (gpu.value(Signal.C2C_ERRORS), gpu.value(Signal.C2C_REPLAYS)) == (20, 300)


def test_newer_links_count_in_another_way(
    fake_nvml: FakeNvml, tmp_path: Path, pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml.create(tmp_path / "blackwell", 1, profiles.BLACKWELL)
    monkeypatch.setenv(STATE_VARIABLE, str(fake.path))
    for link in range(18):
        for field, value in (
            (202, 1000),
            (204, 3000),
            (208, 4),
            (214, 1),
            (215, 2),
            (219, 5),
            (221, 7),
        ):
            fake.set(0, field, value, link)
    gpu = read_again(Devices(pynvml), fake)
    assert gpu.model == "NVIDIA B200"
    assert gpu.value(Signal.NVLINK_SENT) == 18_000
    assert gpu.value(Signal.NVLINK_RECEIVED) == 54_000
    assert gpu.value(Signal.NVLINK_RECOVERIES) == 36
    assert gpu.value(Signal.NVLINK_RECOVERY_FAILED) == 18
    assert gpu.value(Signal.NVLINK_SYMBOLS) == 126
    assert gpu.value(Signal.NVLINK_EFFECTIVE) == 90
    assert gpu.value(Signal.NVLINK_RECEIVING) == 72
    assert gpu.value(Signal.NVLINK_CRC) is None
    assert gpu.refused[Signal.NVLINK_CRC.value] == "field 163 of every link: Not Supported"


@pytest.mark.parametrize(
    ("profile", "tells", "refuses"),
    [
        (profiles.AMPERE, Signal.REMAP_PENDING, Signal.SM_ACTIVE),
        (profiles.VOLTA, Signal.RETIREMENT_PENDING, Signal.FABRIC_STATE),
    ],
)
def test_an_older_gpu_says_what_it_has(
    fake_nvml: FakeNvml,
    tmp_path: Path,
    pynvml: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    profile: profiles.Profile,
    tells: Signal,
    refuses: Signal,
) -> None:
    fake = FakeNvml.create(tmp_path / "older", 1, profile)
    monkeypatch.setenv(STATE_VARIABLE, str(fake.path))
    gpu = read_again(Devices(pynvml), fake)
    assert gpu.value(tells) == 0
    assert gpu.value(refuses) is None
    assert "Not Supported" in gpu.refused[refuses.value]
    assert gpu.value(Signal.NVLINKS_ACTIVE) == profile.links


def test_a_fabric_that_is_not_at_full_strength_is_degraded(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(1, "fabric_health_mask", 1)
    fake_nvml.set(2, "fabric_health_summary", 3)
    fake_nvml.set(3, "fabric_state", 0)
    gpus = devices.read(0.0).gpus
    assert [gpu.value(Signal.FABRIC_DEGRADED) for gpu in gpus[:4]] == [0, 1, 1, None]
    assert "Not Supported" in gpus[3].refused[Signal.FABRIC_STATE.value]


def test_a_value_of_its_own_type_is_understood(devices: Devices, fake_nvml: FakeNvml) -> None:
    fake_nvml.type_field(0, 186, 555_500.0, DOUBLE)
    fake_nvml.type_field(1, 186, 555_500, 1)
    fake_nvml.type_field(2, 186, 555_500, 77)
    gpus = devices.read(0.0).gpus
    assert [gpus[0].value(Signal.POWER), gpus[1].value(Signal.POWER)] == [555.5, 555.5]
    assert gpus[2].value(Signal.POWER) is None


@pytest.mark.parametrize(
    ("signal", "place", "garbage"),
    [
        (Signal.POWER, 186, 0xFFFFFFFF * 1000),
        (Signal.ECC_UNCORRECTED, 4, (1 << 64) - 1),
        (Signal.ENERGY, 83, (1 << 63) * 1000.0),
        (Signal.PCIE_REPLAYS, 94, -5),
        (Signal.BUSY, "busy_percent", 101),
        (Signal.TEMPERATURE, "temperature", 65_535),
        (Signal.PCIE_WIDTH, "pcie_width", 0xFFFF),
        (Signal.PERFORMANCE_STATE, "performance_state", 32),
        (Signal.MEMORY_SIZE, "memory_total", -1),
    ],
)
def test_garbage_is_absent_with_a_reason_and_comes_back(
    devices: Devices, fake_nvml: FakeNvml, signal: Signal, place: int | str, garbage: float
) -> None:
    good = fake_nvml.get(0, signal)
    devices.read(0.0)
    fake_nvml.set(0, place, min(garbage, (1 << 64) - 1))
    gpu = devices.read(10.0).gpus[0]
    assert gpu.value(signal) is None
    assert gpu.refused[signal.value]
    fake_nvml.set(0, signal, good)
    gpu = devices.read(100.0).gpus[0]
    assert gpu.value(signal) == pytest.approx(good)
    assert signal.value not in gpu.refused


def test_counters_that_go_backwards_are_told_as_the_driver_tells_them(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.ECC_CORRECTED, 500)
    assert devices.read(0.0).gpus[0].value(Signal.ECC_CORRECTED) == 500
    fake_nvml.set(0, Signal.ECC_CORRECTED, 3)
    assert devices.read(1.0).gpus[0].value(Signal.ECC_CORRECTED) == 3


def test_a_refused_field_is_told_by_its_other_way_at_once(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.POWER, 300.0)
    fake_nvml.refuse_field(0, 186)
    fake_nvml.refuse_field(0, 185)
    gpu = devices.read(0.0).gpus[0]
    assert gpu.value(Signal.POWER) == 300.0
    assert Signal.POWER.value not in gpu.refused


def test_what_every_way_refuses_names_each_and_is_left_alone_for_a_while(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.refuse_field(0, 186)
    fake_nvml.refuse_field(0, 185)
    fake_nvml.fail("nvmlDeviceGetPowerUsage", NO_PERMISSION, gpu=0)
    for now_s in range(50):
        gpu = devices.read(float(now_s)).gpus[0]
    assert gpu.value(Signal.POWER) is None
    assert gpu.refused[Signal.POWER.value] == (
        "field 186: Not Supported; field 185: Not Supported; "
        "nvmlDeviceGetPowerUsage: Insufficient Permissions"
    )
    assert fake_nvml.asked("nvmlDeviceGetPowerUsage") == 1
    fake_nvml.refuse_field(0, 186, 0)
    gpu = devices.read(60.0).gpus[0]
    assert gpu.value(Signal.POWER) == 72.0
    assert Signal.POWER.value not in gpu.refused


def test_a_failure_that_may_pass_is_asked_again_the_next_time(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.fail("nvmlDeviceGetUtilizationRates", UNKNOWN, gpu=0)
    reading = devices.read(0.0)
    assert reading.gpus[0].value(Signal.BUSY) is None
    assert "Unknown Error" in reading.gpus[0].refused[Signal.BUSY.value]
    assert reading.gpus[1].value(Signal.BUSY) == 0.0
    fake_nvml.fail("nvmlDeviceGetUtilizationRates", 0, gpu=0)
    assert devices.read(1.0).gpus[0].value(Signal.BUSY) == 0.0


def test_a_field_that_says_the_same_after_a_failure_is_told_again(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set(0, Signal.POWER, 300.0)
    for now_s in (0.0, 1.0):
        assert devices.read(now_s).gpus[0].value(Signal.POWER) == 300.0
    fake_nvml.fail("nvmlDeviceGetFieldValues", UNKNOWN, gpu=0)
    assert devices.read(2.0).gpus[0].value(Signal.POWER) is None
    fake_nvml.fail("nvmlDeviceGetFieldValues", 0, gpu=0)
    assert devices.read(3.0).gpus[0].value(Signal.POWER) == 300.0
    fake_nvml.refuse_field(0, 186, UNKNOWN)
    assert devices.read(4.0).gpus[0].value(Signal.POWER) is None
    fake_nvml.refuse_field(0, 186, 0)
    assert devices.read(5.0).gpus[0].value(Signal.POWER) == 300.0
    fake_nvml.lose(0)
    assert devices.read(6.0).gpus[0].value(Signal.POWER) is None
    fake_nvml.lose(0, 0)
    assert devices.read(7.0).gpus[0].value(Signal.POWER) == 300.0


def test_a_field_that_is_asked_seldom_keeps_its_rhythm_while_it_says_the_same(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    def links_asked(now_s: float) -> int:
        before = fake_nvml.asked("nvmlDeviceGetCurrPcieLinkWidth")
        devices.read(now_s)
        return fake_nvml.asked("nvmlDeviceGetCurrPcieLinkWidth") - before

    assert [links_asked(now_s) for now_s in (0.0, 5.0, 10.0, 15.0, 20.0)] == [8, 0, 8, 0, 8]
    fake_nvml.set(0, Signal.PCIE_REPLAYS, 7)
    assert devices.read(25.0).gpus[0].value(Signal.PCIE_REPLAYS) == 0
    assert devices.read(30.0).gpus[0].value(Signal.PCIE_REPLAYS) == 7


def test_no_reading_takes_a_call_that_samples_for_20_ms(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    for now_s in range(0, 120, 10):
        devices.read(float(now_s))
    assert fake_nvml.asked("nvmlDeviceGetPcieThroughput") == 0


def test_an_ordinary_reading_takes_few_calls(devices: Devices, fake_nvml: FakeNvml) -> None:
    devices.read(0.0)
    before = sum(map(fake_nvml.asked, layout.CALLS))
    devices.read(1.0)
    # Fields, 8 calls for what no field tells, and GPM's two, per GPU; and the count of GPUs.
    assert sum(map(fake_nvml.asked, layout.CALLS)) - before == 8 * (1 + 8 + 2) + 1


def test_a_lost_gpu_is_asked_one_thing_only(devices: Devices, fake_nvml: FakeNvml) -> None:
    for gpu in range(8):
        fake_nvml.lose(gpu)
    devices.read(0.0)
    fake_nvml.lose(0, 0)
    devices.read(10.0)
    fake_nvml.lose(0)
    devices.read(11.0)
    before = sum(map(fake_nvml.asked, layout.CALLS))
    devices.read(12.0)
    assert sum(map(fake_nvml.asked, layout.CALLS)) - before == 2


def test_what_changes_seldom_is_asked_seldom_and_kept(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    for now_s in range(10):
        reading = devices.read(float(now_s))
        assert reading.gpus[0].value(Signal.PCIE_WIDTH) == 16
    assert fake_nvml.asked("nvmlDeviceGetCurrPcieLinkWidth") == 8
    assert fake_nvml.asked("nvmlDeviceGetMaxPcieLinkWidth") == 8
    devices.read(10.0)
    assert fake_nvml.asked("nvmlDeviceGetCurrPcieLinkWidth") == 16
    assert fake_nvml.asked("nvmlDeviceGetMaxPcieLinkWidth") == 8


@pytest.mark.parametrize("code", [15, RESET_REQUIRED])
def test_a_lost_gpu_says_nothing_and_the_others_go_on(
    devices: Devices, fake_nvml: FakeNvml, code: int
) -> None:
    devices.read(0.0)
    fake_nvml.lose(3, code)
    reading = devices.read(1.0)
    assert [bool(gpu.lost) for gpu in reading.gpus] == [index == 3 for index in range(8)]
    lost = reading.gpus[3]
    assert (lost.uuid, lost.pci) == ("GPU-00000003-1111-2222-3333-444444444444", "0000:2f:00.0")
    assert (dict(lost.values), lost.users) == ({}, None)
    assert reading.gpus[4].value(Signal.POWER) == 72.0
    assert reading.expected == 8
    fake_nvml.lose(3, 0)
    back = devices.read(2.0).gpus[3]
    assert (back.lost, back.value(Signal.PCIE_WIDTH)) == ("", 16)


def test_a_gpu_that_is_lost_in_the_middle_of_a_reading_is_lost(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    devices.read(0.0)
    fake_nvml.refuse_field(2, 4, 15)
    assert devices.read(1.0).gpus[2].lost == "GPU is lost"


def test_a_gpu_that_was_lost_before_we_came_is_told_without_a_name(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.lose(5)
    reading = devices.read(0.0)
    assert [gpu.index for gpu in reading.gpus] == list(range(8))
    assert (reading.gpus[5].uuid, reading.gpus[5].lost) == ("", "GPU is lost")
    fake_nvml.lose(5, 0)
    assert devices.read(20.0).gpus[5].value(Signal.POWER) == 72.0


def test_a_gpu_that_vanishes_is_told_as_lost_under_its_own_name(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    devices.read(0.0)
    fake_nvml.remove(2)
    reading = devices.read(1.0)
    assert reading.expected == 8
    (lost,) = [gpu for gpu in reading.gpus if gpu.lost]
    assert lost.uuid.startswith("GPU-00000002")
    assert "lists 7 GPUs" in lost.lost
    assert {gpu.uuid for gpu in reading.gpus if not gpu.lost} == {
        f"GPU-{index:08x}-1111-2222-3333-444444444444" for index in (0, 1, 3, 4, 5, 6, 7)
    }


def test_a_gpu_that_vanishes_between_listing_and_opening_is_lost(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.fail("nvmlDeviceGetHandleByIndex_v2", 2, gpu=7)
    reading = devices.read(0.0)
    assert reading.gpus[7].lost == "Invalid Argument"
    assert reading.gpus[6].value(Signal.POWER) == 72.0


def test_a_gpu_that_is_not_ours_is_no_lost_one(devices: Devices, fake_nvml: FakeNvml) -> None:
    fake_nvml.fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, gpu=7)
    reading = devices.read(0.0)
    assert (len(reading.gpus), reading.expected) == (7, 7)
    assert not any(gpu.lost for gpu in reading.gpus)


def test_void_handles_are_taken_anew_in_the_same_reading(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    devices.read(0.0)
    fake_nvml.void_handles()
    reading = devices.read(1.0)
    assert [gpu.value(Signal.POWER) for gpu in reading.gpus] == [72.0] * 8
    assert not any(gpu.lost for gpu in reading.gpus)


def test_after_a_driver_reload_reading_goes_on(devices: Devices, fake_nvml: FakeNvml) -> None:
    devices.read(0.0)
    fake_nvml.load("590.44")
    reading = devices.read(1.0)
    assert reading.driver == "590.44"
    assert [gpu.value(Signal.POWER) for gpu in reading.gpus] == [72.0] * 8


def test_a_driver_that_is_unloaded_is_a_failure_until_it_is_back(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    devices.read(0.0)
    fake_nvml.unload()
    for now_s in (1.0, 2.0):
        with pytest.raises(NvmlDriverError, match="Driver Not Loaded"):
            devices.read(now_s)
    fake_nvml.load()
    assert len(devices.read(3.0).gpus) == 8


def test_another_driver_under_a_running_process_needs_a_new_process(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    devices.read(0.0)
    fake_nvml.unload(VERSION_MISMATCH)
    with pytest.raises(DriverReplacedError):
        devices.read(1.0)


def test_a_failure_of_the_driver_as_a_whole_is_begun_again(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.fail("nvmlDeviceGetCount_v2", UNKNOWN)
    with pytest.raises(NvmlDriverError, match="Unknown Error"):
        devices.read(0.0)
    fake_nvml.fail("nvmlDeviceGetCount_v2", 0)
    assert len(devices.read(1.0).gpus) == 8


def test_a_beginning_that_fails_half_way_is_made_anew(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.fail("nvmlSystemGetDriverVersion", UNKNOWN)
    with pytest.raises(NvmlDriverError, match="Unknown Error"):
        devices.read(0.0)
    fake_nvml.fail("nvmlSystemGetDriverVersion", 0)
    assert devices.read(1.0).driver == "580.95.05"


def test_a_machine_without_a_driver_is_a_normal_machine(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.unload()
    assert devices.read(0.0) == GpuReading(is_present=False)
    fake_nvml.load()
    assert not devices.read(30.0).is_present
    assert devices.read(60.0).is_present


def test_a_machine_without_the_library_is_a_normal_machine(
    fake_nvml: FakeNvml, pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert Devices(pynvml).read(0.0) == GpuReading(is_present=False)


def test_more_gpus_may_be_expected_than_the_driver_ever_listed(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    assert Devices(pynvml, expected=9).read(0.0).expected == 9


def test_an_older_driver_tells_what_it_can(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    pynvml = fresh_pynvml(compiled(tmp_path / "older", NEWER_CALLS))
    gpu = read_again(Devices(pynvml), fake_nvml)
    assert gpu.value(Signal.TEMPERATURE) == 34
    assert gpu.value(Signal.TEMPERATURE_MARGIN) == 87 - 34
    assert gpu.value(Signal.MEMORY_SIZE) == 80 << 30
    assert gpu.value(Signal.THROTTLE_REASONS) == 1
    absent = set(Signal) - set(gpu.values) - {Signal(name) for name in gpu.refused}
    assert absent == set()
    for signal in (Signal.MEMORY_RESERVED, Signal.FABRIC_STATE, Signal.SM_ACTIVE):
        assert "Function Not Found" in gpu.refused[signal.value]


def test_a_driver_without_field_values_tells_what_calls_tell(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    pynvml = fresh_pynvml(compiled(tmp_path / "oldest", ["nvmlDeviceGetFieldValues"]))
    gpu = Devices(pynvml).read(0.0).gpus[0]
    assert (gpu.value(Signal.POWER), gpu.value(Signal.ECC_UNCORRECTED)) == (72.0, 0)
    assert gpu.refused[Signal.RECOVERY_ACTION.value] == "field 230: Function Not Found"


def test_older_bindings_tell_what_they_can(devices: Devices, pynvml: ModuleType) -> None:
    del pynvml.nvmlDeviceGetMarginTemperature
    del pynvml.c_nvmlGpuFabricInfo_v3_t
    del pynvml.nvmlGpmQueryDeviceSupport
    gpu = devices.read(0.0).gpus[0]
    assert gpu.value(Signal.TEMPERATURE_MARGIN) == 53
    assert (gpu.value(Signal.FABRIC_STATE), gpu.value(Signal.FABRIC_DEGRADED)) == (3, 0)
    assert "not known to the installed" in gpu.refused[Signal.SM_ACTIVE.value]


def test_processes_that_may_not_be_seen_are_not_none_of_them(
    devices: Devices, fake_nvml: FakeNvml
) -> None:
    fake_nvml.users(0, [1])
    assert devices.read(0.0).gpus[0].users == (GpuUser(1, 1 << 30),)
    fake_nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", NO_PERMISSION, gpu=0)
    gpu = devices.read(5.0).gpus[0]
    assert (gpu.users, gpu.value(Signal.PROCESSES)) == (None, None)
    assert "Insufficient Permissions" in gpu.refused[Signal.PROCESSES.value]


def test_a_gpu_in_mig_mode_names_its_parts(devices: Devices, fake_nvml: FakeNvml) -> None:
    devices.read(0.0)
    fake_nvml.mig(1, ["MIG-a", "MIG-b"])
    fake_nvml.fail("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, gpu=1)
    gpus = devices.read(10.0).gpus
    assert (gpus[1].is_mig, gpus[1].mig_uuids) == (True, ("MIG-a", "MIG-b"))
    assert gpus[1].value(Signal.BUSY) is None
    assert gpus[0].is_mig is False
    fake_nvml.mig(1, [])
    assert devices.read(20.0).gpus[1].mig_uuids == ()
