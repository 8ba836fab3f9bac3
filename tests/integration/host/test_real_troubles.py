"""Troubles of a host made for real: a silent file system, a quota, inodes that run out."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.components.host.cpu import ThrottlingProbe
from holdfast_sidecar.components.host.host import HostProbe, find_host_troubles
from holdfast_sidecar.config.settings import HostSettings
from holdfast_sidecar.linux.cgroups import CgroupPlace, find_places, parse_mounts
from holdfast_sidecar.performance.stragglers.load import Counts, Meter, NodeLoad
from holdfast_sidecar.ranks.probe import parse_turns
from holdfast_sidecar.records.findings import Finding, Kind, Moment

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 and not os.environ.get("CI"), reason="mounts and cgroups need root"
    ),
]

BUSY = "while True: pass"


def judged(probe: HostProbe, at_s: float) -> list[Finding]:
    return list(find_host_troubles(probe.read(at_s), Moment(at_s, at_s, "a", 0.0)))


@pytest.fixture
def silent_mount(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server never answers: nobody reads what the kernel asks of it."""
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no FUSE here")
    point = tmp_path / "silent"
    point.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"silent", str(point).encode(), b"fuse", 0, options):
        os.close(server)
        pytest.skip(f"can't mount it: {os.strerror(ctypes.get_errno())}")
    yield point
    os.close(server)  # whoever waits is answered that the server is gone
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_file_system_that_never_answers_is_told_and_holds_nothing_up(
    silent_mount: Path, tmp_path: Path
) -> None:
    rooms = {"checkpoint": silent_mount / "run", "shm": Path("/dev/shm")}
    probe = HostProbe(rooms, settings=HostSettings(storage_every_s=0.0))
    began_s = time.monotonic()
    assert Kind.STORAGE_STALLED not in {finding.kind for finding in judged(probe, 100.0)}
    findings = [one for one in judged(probe, 120.0) if one.kind is Kind.STORAGE_STALLED]
    assert time.monotonic() - began_s < 2.0
    assert [one.what for one in findings] == ["checkpoint"]
    assert findings[0].evidence == ["checkpoint: its file system has not answered for 20 s"]
    assert "shm" in probe.read(121.0).rooms


@pytest.fixture
def inodes(tmp_path: Path) -> Iterator[Path]:
    """A file system with few inodes, nearly all of them taken."""
    point = tmp_path / "inodes"
    point.mkdir()
    options = "size=8m,nr_inodes=200"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)], check=True)
    for number in range(196):
        (point / str(number)).touch()
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_file_system_without_inodes_is_full_though_it_has_room(inodes: Path) -> None:
    found = [f for f in judged(HostProbe({"state": inodes}), 0.0) if f.kind is Kind.DISK_FULL]
    assert [finding.what for finding in found] == ["state"]
    assert found[0].evidence[0].endswith("inodes of 200 are left")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own with a tenth of a core, shared out a hundred times a second."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    places = find_places("cpu", Path("/proc/self/cgroup").read_text(), mounts)
    made = next(filter(None, map(limited, reversed(places))), None)
    if made is None:
        pytest.skip("no control group with a quota can be made here")
    yield made
    made.rmdir()


def limited(place: CgroupPlace) -> Path | None:
    made = place.directory / f"holdfast-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError:
        return None
    try:
        if place.is_unified:
            (made / "cpu.max").write_text("1000 10000")
        else:
            (made / "cpu.cfs_period_us").write_text("10000")
            (made / "cpu.cfs_quota_us").write_text("1000")
    except OSError:
        made.rmdir()
        return None
    return made


def test_a_rank_that_its_quota_keeps_waiting_is_found_throttled(group: Path) -> None:
    rank = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        (group / "cgroup.procs").write_text(str(rank.pid))
        probe = HostProbe({}, ranks=lambda: {0: rank.pid})
        probe.read(0.0)
        time.sleep(2.0)  # more than a hundred periods
        found = [f for f in judged(probe, 61.0) if f.kind is Kind.CPU_THROTTLED]
    finally:
        rank.kill()
        rank.wait()
    assert len(found) == 1
    assert found[0].evidence[0].startswith("the CPU quota of 0.1 cores was used up in ")


def test_a_ranks_own_line_tells_its_quota_from_a_queue_for_the_cores(group: Path) -> None:
    meter, rank = Meter(), subprocess.Popen([sys.executable, "-c", BUSY])
    probe = ThrottlingProbe(lambda: {0: rank.pid})
    try:
        (group / "cgroup.procs").write_text(str(rank.pid))
        began_s = time.monotonic()
        for _ in range(2):
            at_s = time.monotonic()
            queued_ns = parse_turns(Path(f"/proc/{rank.pid}/schedstat").read_text()).queued_ns or 0
            throttled_s = probe.read(at_s).get(0)
            meter.note(Counts(at_s, at_s - began_s, queued_ns / 1e9, throttled_s))
            time.sleep(2.0)
    finally:
        rank.kill()
        rank.wait()
    load = meter.read(NodeLoad())
    assert load.throttled_permille > 500
    assert load.queued_permille < 1000 - load.throttled_permille + 50
