"""A whole sidecar on a driver of C code: a wedged driver is told, and no child outlives it."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from testing.fake_nvml.driver import FakeNvml
from tests.integration.sidecar.node import Node, wait_for

FRESH = re.compile(r"^holdfast_sidecar_last_tick_timestamp_seconds\{.*\} (\S+)$", re.MULTILINE)


def children(sidecar: int) -> list[int]:
    """Those of a sidecar that ask NVML."""
    told = Path(f"/proc/{sidecar}/task/{sidecar}/children").read_text().split()
    return [int(pid) for pid in told if b"/nvml/__main__.py" in read(pid, "cmdline")]


def read(pid: str | int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def is_up(page: str, probe: str) -> bool:
    (up,) = re.findall(rf'^holdfast_probe_up\{{.*probe="{probe}".*\}} (\d)', page, re.MULTILINE)
    return bool(int(up))


def is_alive(pid: int) -> bool:
    return read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def xids_of(node: Node, gpu: int) -> list[str]:
    """What is found of a GPU; the machine's own log may tell of others."""
    return [f.what for f in node.findings("gpu_fault") if f.gpu.startswith(f"GPU-{gpu:08x}")]


def test_a_wedged_driver_is_found_and_the_page_keeps_fresh(node: Node, fake_nvml: FakeNvml) -> None:
    node.sidecar("--set", "gpu.deadline_s=1.0", "--set", "gpu.every_s=0.25")
    wait_for(lambda: node.report() and "gpu_busy_ratio{" in node.ask("/metrics"))
    fake_nvml.hang_all()
    hung_s = time.monotonic()
    wait_for(lambda: node.findings("nvml_wedged"))
    assert time.monotonic() - hung_s < 2.5  # the finding's way to the store included
    wait_for(lambda: {f.what for f in node.findings("nvml_wedged")} == {"poll", "events"})
    page = node.ask("/metrics")
    assert "holdfast_gpu_readings_stale" in page
    assert 'uuid="GPU-00000000' in page
    assert "gpu_busy_ratio{" not in page
    (fresh,) = FRESH.findall(page)
    assert time.time() - float(fresh) < 1.5
    assert {probe for probe in ("gpu", "gpu_events") if is_up(page, probe)} == set()
    for check in ("gpus", "recovery", "gpu memory", "pcie", "nvlink"):
        assert f'gate_check_passed{{check="{check}"' not in page
    report = node.report()
    assert report is not None
    assert report.gate is not None
    assert (report.gate.gpus, report.gate.gpus_all) == (None, 8)
    fake_nvml.release()
    wait_for(lambda: not node.findings("nvml_wedged"))
    page = node.ask("/metrics")
    assert "gpu_busy_ratio{" in page
    assert is_up(page, "gpu")
    assert 'gate_check_passed{check="recovery"' in page


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_sidecar(
    node: Node, fake_nvml: FakeNvml, number: signal.Signals
) -> None:
    sidecar = node.sidecar()
    pair = wait_for(lambda: len(found := children(sidecar.pid)) == 2 and found)
    for call in ("nvmlEventSetWait_v2", "nvmlDeviceGetFieldValues"):
        wait_for(lambda call=call: fake_nvml.asked(call))  # type: ignore[misc]
    if niceness(sidecar.pid) < 0:
        assert sorted(map(niceness, pair)) == [niceness(sidecar.pid), 0]  # events, readings
    fake_nvml.hang_all()
    sidecar.send_signal(number)
    sidecar.wait(15)
    wait_for(lambda: not any(map(is_alive, pair)))


def test_on_a_machine_without_a_driver_no_child_is_left(node: Node, fake_nvml: FakeNvml) -> None:
    fake_nvml.unload()
    sidecar = node.sidecar()
    wait_for(lambda: node.report())
    wait_for(lambda: not children(sidecar.pid) and "gpu_events" in node.ask("/metrics"))
    page = node.ask("/metrics")
    assert "holdfast_gpu_readings_stale" not in page
    assert "holdfast_gpu_events_watched" not in page
    assert "holdfast_gpu_info" not in page
    assert 'holdfast_probe_up{node="a",probe="gpu",run="job"} 1' in node.ask("/metrics")


def test_an_xid_that_the_driver_tells_is_found_before_the_next_tick_is_due(
    node: Node, fake_nvml: FakeNvml
) -> None:
    node.sidecar()
    wait_for(lambda: node.report() and "holdfast_gpu_events_watched{" in node.ask("/metrics"))
    late_s = []
    for gpu in range(5):
        time.sleep(0.11 * gpu)  # at another moment between two ticks each time
        raised_s = time.monotonic()
        fake_nvml.raise_xid(gpu, 79)
        wait_for(lambda gpu=gpu: xids_of(node, gpu))  # type: ignore[misc]
        late_s.append(time.monotonic() - raised_s)
        (what,) = xids_of(node, gpu)
        assert what.startswith("xid 79")
    assert sorted(late_s)[2] < 0.2  # a tick is half a second; its way to the store is in it
