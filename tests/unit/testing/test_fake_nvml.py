from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from testing.fake_nvml import driver, layout
from testing.fake_nvml.driver import GPU_IS_LOST, NO_PERMISSION, NOT_SUPPORTED, PLACES, FakeNvml
from tests import fake_nvml as nvml_for_tests

from holdfast_sidecar.components.gpu.readings import GpuUser, Signal


def started(pynvml: ModuleType, index: int = 0) -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_the_library_and_its_driver_lay_out_the_same_bytes(nvml_library: Path) -> None:
    size = ctypes.CDLL(str(nvml_library)).holdfast_fake_nvml_state_size
    size.restype = ctypes.c_uint64
    assert size() == ctypes.sizeof(layout.State)


def test_every_call_that_is_listed_is_exported(nvml_library: Path) -> None:
    library = ctypes.CDLL(str(nvml_library))
    assert [name for name in layout.CALLS if not hasattr(library, name)] == []


def test_the_real_bindings_read_who_a_gpu_is(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handle = started(pynvml, 2)
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlDeviceGetCount() == 8
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetUUID(handle).startswith("GPU-00000002-")
    assert pynvml.nvmlDeviceGetPciInfo(handle).busId == "00000000:27:00.0"
    by_uuid = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(handle))
    assert pynvml.nvmlDeviceGetIndex(by_uuid) == 2


def test_versioned_structures_are_filled_in_and_other_versions_refused(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    handle = started(pynvml)
    assert pynvml.nvmlDeviceGetTemperatureV(handle, 0) == 34
    assert pynvml.nvmlDeviceGetMarginTemperature(handle) == 53
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (memory.total, memory.reserved) == (80 << 30, 600 << 20)
    sram = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(sram))
    assert sram.bThresholdExceeded == 0
    fabric = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(fabric))
    assert (fabric.state & 0xFF, fabric.healthSummary) == (3, 1)
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetMemoryInfo(handle, version=9)


def test_every_field_has_a_return_code_of_its_own(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handle = started(pynvml)
    fake_nvml.set(0, 186, 650_000)
    fake_nvml.refuse_field(0, 83, NO_PERMISSION)
    power, energy, unknown = pynvml.nvmlDeviceGetFieldValues(handle, [186, 83, 29])
    assert (power.nvmlReturn, power.value.ullVal) == (0, 650_000)
    assert (energy.nvmlReturn, unknown.nvmlReturn) == (NO_PERMISSION, NOT_SUPPORTED)


def test_a_link_field_is_told_link_by_link(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handle = started(pynvml)
    fake_nvml.set(0, 165, 0, link=5)
    links = pynvml.nvmlDeviceGetFieldValues(handle, [(165, link) for link in range(19)])
    assert [link.value.ullVal for link in links[:18]] == [1] * 5 + [0] + [1] * 12
    assert links[18].nvmlReturn == NOT_SUPPORTED


@pytest.mark.parametrize("signal", PLACES)
def test_a_signal_that_was_set_is_read_back(fake_nvml: FakeNvml, signal: Signal) -> None:
    fake_nvml.set(3, signal, 1024.0 * 1000 * 1000)
    assert fake_nvml.get(3, signal) == pytest.approx(1024.0 * 1000 * 1000)


def test_processes_are_listed_and_one_may_not_tell_its_memory(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    handle = started(pynvml)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    fake_nvml.users(0, [4711, GpuUser(4712)])
    told = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(one.pid, one.usedGpuMemory) for one in told] == [(4711, 1 << 30), (4712, None)]


def test_an_xid_wakes_who_waits_in_another_process_within_milliseconds(
    fake_nvml: FakeNvml, nvml_library: Path
) -> None:
    program = """if True:
        import pynvml, time
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        handle = pynvml.nvmlDeviceGetHandleByIndex(3)
        types = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
        pynvml.nvmlDeviceRegisterEvents(handle, types & 8, events)
        print("ready", flush=True)
        event = pynvml.nvmlEventSetWait_v2(events, 20000)
        print(time.monotonic(), event.eventType, event.eventData, flush=True)
        print(pynvml.nvmlDeviceGetIndex(event.device), flush=True)
    """
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        fake_nvml.raise_xid(2, 31)
        raised_s = time.monotonic()
        fake_nvml.raise_xid(3, 79)
        at_s, kind, xid = child.stdout.readline().split()
        assert (kind, xid, child.stdout.readline()) == ("8", "79", "3\n")
    # Some 0.3 ms on an idle machine; a second where the wake-up was lost.
    assert float(at_s) - raised_s < 0.9


def test_waiting_for_events_ends_with_a_timeout(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    started(pynvml)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(pynvml.nvmlEventSetCreate(), 1)


def test_whoever_waits_for_events_sleeps_meanwhile(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    started(pynvml)
    events = pynvml.nvmlEventSetCreate()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 300)
    # As a real driver has it. Twenty looks a second would cost more than the sidecar's own.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before <= 2


def test_an_event_that_the_gpu_does_not_know_cannot_be_waited_for(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    handle = started(pynvml)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceRegisterEvents(handle, 0x8000, pynvml.nvmlEventSetCreate())


def test_a_call_hangs_until_it_is_released(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handles = [started(pynvml, index) for index in (0, 1)]
    fake_nvml.hang("nvmlDeviceGetPowerUsage", gpu=0)
    assert pynvml.nvmlDeviceGetPowerUsage(handles[1]) == 72_000
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(pynvml.nvmlDeviceGetPowerUsage(handles[0])), daemon=True
    )
    asking.start()
    asking.join(0.05)
    assert asking.is_alive()
    fake_nvml.release()
    asking.join(5)
    assert answers == [72_000]


def test_a_call_fails_for_one_gpu_or_for_all(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handles = [started(pynvml, index) for index in (0, 1)]
    fake_nvml.fail("nvmlDeviceGetPowerUsage", NO_PERMISSION, gpu=1)
    assert pynvml.nvmlDeviceGetPowerUsage(handles[0]) == 72_000
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceGetPowerUsage(handles[1])
    fake_nvml.fail("nvmlDeviceGetPowerUsage", 999)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetPowerUsage(handles[0])
    assert fake_nvml.asked("nvmlDeviceGetPowerUsage") == 3


def test_a_lost_gpu_answers_nothing_and_the_others_go_on(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    handles = [started(pynvml, index) for index in (0, 1)]
    fake_nvml.lose(0)
    with pytest.raises(pynvml.NVMLError_GpuIsLost) as lost:
        pynvml.nvmlDeviceGetName(handles[0])
    assert lost.value.value == GPU_IS_LOST
    assert pynvml.nvmlDeviceGetName(handles[1])


def test_after_a_driver_reload_everything_must_begin_again(
    fake_nvml: FakeNvml, pynvml: ModuleType
) -> None:
    handle = started(pynvml)
    fake_nvml.unload()
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlDeviceGetCount()
    fake_nvml.load("590.1")
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    assert pynvml.nvmlSystemGetDriverVersion() == "590.1"
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetName(handle)


def test_an_older_driver_lacks_functions(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    older = nvml_for_tests.compiled(tmp_path, without=["nvmlDeviceGetMarginTemperature"])
    pynvml = nvml_for_tests.fresh_pynvml(older)
    handle = started(pynvml)
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetMarginTemperature(handle)
    assert pynvml.nvmlDeviceGetTemperatureV(handle, 0) == 34


def test_a_gpu_is_split_into_mig_devices(fake_nvml: FakeNvml, pynvml: ModuleType) -> None:
    handle = started(pynvml)
    fake_nvml.mig(0, ["MIG-a", "MIG-b"])
    assert pynvml.nvmlDeviceGetMigMode(handle)[0] == 1
    second = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
    assert pynvml.nvmlDeviceGetUUID(second) == "MIG-b"
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 2)


def test_without_a_compiler_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(driver.CompilerMissingError, match="cc is not installed"):
        driver.build(tmp_path / "made")
