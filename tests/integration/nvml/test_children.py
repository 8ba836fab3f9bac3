"""The children on a driver of C code: what they tell, and what becomes of a driver that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
from testing.fake_nvml.driver import GPU_IS_LOST, UNKNOWN, FakeNvml

from holdfast_sidecar.components.gpu.nvml.probe import (
    GpuEventProbe,
    GpuProbe,
    NvmlFailedError,
    open_event_probe,
    open_gpu_probe,
)
from holdfast_sidecar.components.gpu.readings import GpuReading, Signal
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.config.settings import GpuSettings

SETTINGS = GpuSettings(every_s=0.1, deadline_s=1.0)
LATEST_S = 0.05
"""From an XID to whoever judges it."""


class Node:
    """Both probes, looked at as the loop does: twice a second, and when woken."""

    def __init__(self, settings: GpuSettings) -> None:
        self.woken = threading.Event()
        gpu, events = open_gpu_probe(settings), open_event_probe(settings, self.woken.set)
        assert isinstance(gpu, GpuProbe)
        assert isinstance(events, GpuEventProbe)
        self.gpu, self.events = gpu, events
        self.reading: GpuReading | None = None
        self.told = GpuEvents()
        self.trouble = ""

    def look(self) -> None:
        now_s = time.monotonic()
        self.trouble = ""
        try:
            self.told = self.events.read(now_s)
        except NvmlFailedError as error:
            self.trouble = str(error)
        try:
            self.reading = self.gpu.read(now_s)
        except NvmlFailedError as error:
            self.trouble = str(error)

    def look_until(self, is_so: Callable[[], Any], limit_s: float = 8.0) -> float:
        """How long it took, in seconds."""
        started_s = time.monotonic()
        while not is_so():
            assert time.monotonic() - started_s < limit_s, self.__dict__
            self.woken.wait(0.05)
            self.woken.clear()
            self.look()
        return time.monotonic() - started_s

    def begin(self) -> None:
        """Until everything is told."""
        self.look_until(lambda: self.reading and self.told.listening_to)


@pytest.fixture
def node(fake_nvml: FakeNvml) -> Iterator[Node]:
    made = Node(SETTINGS)
    yield made
    fake_nvml.release()
    made.gpu.close()
    made.events.close()


def resident_bytes(pid: int) -> int:
    """That is this process's own."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (own,) = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own * 1024


def test_readings_come_from_a_child_and_follow_the_driver(node: Node, fake_nvml: FakeNvml) -> None:
    node.begin()
    assert node.reading is not None
    assert [gpu.pci for gpu in node.reading.gpus[:2]] == ["0000:17:00.0", "0000:1f:00.0"]
    assert node.reading.took_s > 0.0
    fake_nvml.set(3, Signal.TEMPERATURE, 91.0)

    def is_told() -> bool:
        assert node.reading is not None
        return node.reading.gpus[3].value(Signal.TEMPERATURE) == 91.0

    node.look_until(is_told)


def test_both_children_are_small(node: Node) -> None:
    node.begin()
    node.look_until(lambda: node.gpu.keeper.custody.heard_s)
    (poll,), (events,) = node.gpu.keeper.pids, node.events.keeper.pids
    assert resident_bytes(poll) < 18 * 2**20
    assert resident_bytes(events) < 8 * 2**20


def test_an_xid_wakes_the_loop_at_once(node: Node, fake_nvml: FakeNvml) -> None:
    node.begin()
    late_s = []
    for number in range(20):
        fake_nvml.raise_xid(number % 8, 79)
        late_s.append(node.look_until(lambda: node.told.xids))
        (xid,) = node.told.xids
        assert (xid.xid, xid.source, xid.text) == (79, "nvml", "")
        assert xid.pci == f"0000:{0x17 + 8 * (number % 8):02x}:00.0"
        assert abs(xid.at_unix_s - time.time()) < 1.0
        node.look()
        assert node.told.xids == ()
    assert sorted(late_s)[len(late_s) // 2] < LATEST_S


def test_an_xid_by_no_number_is_told_and_nothing_follows_from_it(
    node: Node, fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    node.begin()
    for times in (1, 2):
        fake_nvml.raise_xid(1, 0)
        node.look_until(lambda: node.told.counts["unknown_xid"] == times)  # noqa: B023
        assert node.told.xids == ()
    assert caplog.text.count("by the number 0") == 1


def test_other_events_are_told_by_name_and_counted(node: Node, fake_nvml: FakeNvml) -> None:
    fake_nvml.set(0, "event_types", 0x8 | 0x200)
    node.begin()
    assert set(node.told.counts.values()) == {0}
    fake_nvml.raise_event(0, 0x200)
    node.look_until(lambda: node.told.others)
    (event,) = node.told.others
    assert (event.name, event.pci) == ("single_bit_ecc_storm", "0000:17:00.0")
    assert node.told.counts["single_bit_ecc_storm"] == 1


def test_a_driver_that_hangs_is_told_in_time_and_events_go_on(
    node: Node, fake_nvml: FakeNvml
) -> None:
    node.begin()
    fake_nvml.hang("nvmlDeviceGetFieldValues", gpu=3)
    took_s = node.look_until(lambda: node.reading and node.reading.silence)
    assert took_s < SETTINGS.deadline_s + 1.0
    assert node.reading is not None
    assert node.reading.silence is not None
    assert node.reading.silence.asking == "nvmlDeviceGetFieldValues of GPU 3"
    assert len(node.reading.gpus) == 8
    assert not any(gpu.values for gpu in node.reading.gpus)

    fake_nvml.raise_xid(3, 119)
    assert node.look_until(lambda: node.told.xids) < LATEST_S * 4
    fake_nvml.release()
    node.look_until(lambda: node.reading and node.reading.silence is None)
    assert all(gpu.values for gpu in node.reading.gpus)


def test_waiting_for_events_that_hangs_is_told_and_readings_go_on(
    node: Node, fake_nvml: FakeNvml
) -> None:
    node.begin()
    fake_nvml.hang("nvmlEventSetWait_v2")
    assert node.look_until(lambda: node.told.silence) < SETTINGS.deadline_s + 1.0
    assert node.told.silence is not None
    assert node.told.silence.asking == "nvmlEventSetWait"
    assert node.told.listening_to is None
    assert node.reading is not None
    assert time.monotonic() - node.reading.read_at_s < 0.5
    fake_nvml.release()
    node.look_until(lambda: node.told.listening_to == 8)


def test_a_driver_that_hangs_from_the_start_is_told_as_soon(
    node: Node, fake_nvml: FakeNvml
) -> None:
    fake_nvml.hang_all()
    took_s = node.look_until(lambda: node.reading and node.reading.silence and node.told.silence)
    assert took_s < SETTINGS.deadline_s + 1.0
    assert node.reading is not None
    assert node.reading.is_present is False
    fake_nvml.release()
    node.look_until(lambda: node.reading and node.reading.gpus and node.told.listening_to == 8)
    assert node.reading.silence is None


def test_a_gpu_that_falls_off_the_bus_does_not_deafen_the_others(
    node: Node, fake_nvml: FakeNvml
) -> None:
    node.begin()
    fake_nvml.lose(2)
    fake_nvml.fail("nvmlEventSetWait_v2", GPU_IS_LOST)
    node.look_until(lambda: node.told.listening_to != 8 or fake_nvml.asked("nvmlEventSetFree"))
    fake_nvml.fail("nvmlEventSetWait_v2", 0)
    node.look_until(lambda: node.told.listening_to == 7)
    fake_nvml.raise_xid(5, 48)
    node.look_until(lambda: node.told.xids)


def test_a_driver_that_is_taken_away_and_comes_back(node: Node, fake_nvml: FakeNvml) -> None:
    node.begin()
    fake_nvml.unload()
    node.look_until(lambda: node.trouble or (node.reading and not node.reading.is_present))
    fake_nvml.load("575.2")
    for keeper in (node.gpu.keeper, node.events.keeper):
        node.look_until(lambda keeper=keeper: not keeper.pids)  # type: ignore[misc]
        keeper.custody = type(keeper.custody)(keeper.custody.patience_s)  # the pause is over
    node.look_until(lambda: node.reading and node.reading.driver == "575.2")
    node.look_until(lambda: node.told.listening_to == 8)


def test_a_driver_that_refuses_is_a_failure_with_its_reason(
    node: Node, fake_nvml: FakeNvml
) -> None:
    fake_nvml.fail("nvmlInitWithFlags", UNKNOWN)
    gpu, events = node.gpu.keeper, node.events.keeper
    node.look_until(lambda: gpu.trouble and events.trouble)
    assert node.trouble == gpu.trouble == "Unknown Error"
    assert events.trouble == "nvmlInitWithFlags: code 999 of the fake driver"


@pytest.mark.parametrize("is_library_there", [True, False])
def test_without_a_driver_no_child_is_left(
    node: Node, fake_nvml: FakeNvml, is_library_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.unload()
    if not is_library_there:
        monkeypatch.delenv("LD_LIBRARY_PATH")
        if find_library("nvidia-ml"):
            pytest.skip("this machine has a library of its own")
    node.look_until(lambda: node.gpu.keeper.is_absent and node.events.keeper.is_absent)
    node.look_until(lambda: not (node.gpu.keeper.pids or node.events.keeper.pids))
    assert node.reading == GpuReading(is_present=False)
    assert node.told == GpuEvents()


def test_where_it_is_set_nobody_asks(fake_nvml: FakeNvml) -> None:
    off = GpuSettings(enabled=False)
    assert open_gpu_probe(off).read(0.0) == GpuReading(is_present=False)
    assert open_event_probe(off, lambda: None).read(0.0) == GpuEvents()
    assert fake_nvml.asked("nvmlInitWithFlags") == 0
