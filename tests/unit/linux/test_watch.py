from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.linux.kmsg import (
    KMSG,
    MOST_WAITING,
    KernelLog,
    KernelLogBlind,
    KernelRecord,
    why_blind,
)

XID = "NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PATIENCE_S = 5.0


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A twin of the log: what is written into it comes out as it was."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, writer
    os.close(writer)


def records_of(log: KernelLog, count: int) -> list[KernelRecord]:
    found: list[KernelRecord] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline_s:
        found += log.read(0.0).records
        time.sleep(0.002)
    return found


def test_an_xid_wakes_the_loop_and_other_lines_do_not(
    pipe: tuple[Path, int], woken: threading.Event
) -> None:
    path, writer = pipe
    log = KernelLog(woken.set, path, backlog_s=PATIENCE_S)
    log.read(0.0)
    os.write(writer, b"6,1,100,-;mlx5_core 0000:0c:00.0: Port module event\n")
    assert [record.sequence for record in records_of(log, 1)] == [1]
    assert not woken.is_set()
    os.write(writer, f"3,2,200,-;{XID}\n".encode())
    assert woken.wait(PATIENCE_S)
    assert [record.text for record in records_of(log, 1)] == [XID]
    log.close()


def test_lines_that_nobody_reads_are_dropped(
    pipe: tuple[Path, int], woken: threading.Event
) -> None:
    path, writer = pipe
    os.write(writer, b"6,1,1,-;usb 1-1: new device\n SUBSYSTEM=usb\n")
    os.write(writer, f"garbage\n3,2,2,-;{XID}\n".encode())
    log = KernelLog(woken.set, path, backlog_s=PATIENCE_S)
    assert [record.text for record in records_of(log, 1)] == [XID]
    log.close()


def test_what_was_there_before_is_told_as_that_with_its_own_time(
    pipe: tuple[Path, int], woken: threading.Event
) -> None:
    path, writer = pipe
    an_hour_ago_us = int(max(0.0, time.monotonic() - 3600.0) * 1e6)
    os.write(writer, f"3,7,{an_hour_ago_us},-;{XID}\n".encode())
    log = KernelLog(woken.set, path, backlog_s=PATIENCE_S)
    (old,) = records_of(log, 1)
    assert old.is_backlog
    assert time.time() - old.at_unix_s > min(3500.0, time.monotonic() - 60.0)
    os.write(writer, f"3,8,{an_hour_ago_us},-;{XID}\n".encode())
    (new,) = records_of(log, 1)
    assert not new.is_backlog
    assert time.time() - new.at_unix_s < PATIENCE_S
    log.close()


def test_a_log_that_is_not_there_blinds_the_probe_with_a_reason(
    tmp_path: Path, woken: threading.Event
) -> None:
    log = KernelLog(woken.set, tmp_path / "nowhere", backlog_s=PATIENCE_S)
    with pytest.raises(KernelLogBlind, match=r"No such file.*mounted into the container"):
        log.read(0.0)
    log.close()


@pytest.mark.parametrize(
    ("number", "mend"),
    [(errno.EPERM, "CAP_SYSLOG"), (errno.EACCES, "readable"), (errno.ENOENT, "mounted")],
)
def test_a_log_that_may_not_be_read_says_what_would_mend_it(number: int, mend: str) -> None:
    why = why_blind(OSError(number, "x"))
    assert why.startswith("/dev/kmsg: ")
    assert mend in why


def test_a_log_that_opens_and_can_t_be_read_blinds_the_probe_with_a_reason(
    tmp_path: Path, woken: threading.Event
) -> None:
    log = KernelLog(woken.set, tmp_path, backlog_s=PATIENCE_S)
    with pytest.raises(KernelLogBlind, match="Is a directory"):
        log.read(0.0)
    log.close()


def test_a_storm_is_bounded_and_what_was_dropped_is_counted(
    tmp_path: Path, woken: threading.Event
) -> None:
    path = tmp_path / "kmsg"
    lines = (f"4,{n},{n},-;NVRM: Xid (PCI:0000:17:00): 45\n" for n in range(MOST_WAITING + 10))
    path.write_text("".join(lines))
    log = KernelLog(woken.set, path, backlog_s=PATIENCE_S)
    reading = log.read(0.0)
    assert len(reading.records) == MOST_WAITING
    assert reading.missed >= 10
    log.close()


@pytest.mark.root
@pytest.mark.skipif(not os.access(KMSG, os.R_OK | os.W_OK), reason="the kernel's log is not ours")
def test_this_machines_own_log_is_followed(woken: threading.Event) -> None:
    log = KernelLog(woken.set, backlog_s=PATIENCE_S)
    log.read(0.0)
    line = f"NVRM: Xid (PCI:0000:fe:00): 14, pid={os.getpid()}, name=holdfast-test, made up"
    with KMSG.open("w") as file:
        file.write(f"<3>{line}\n")
    deadline_s = time.monotonic() + PATIENCE_S
    found: list[KernelRecord] = []
    while not found and time.monotonic() < deadline_s:
        found = [record for record in records_of(log, 1) if record.text == line]
    assert [record.level for record in found] == [3]
    assert woken.is_set()
    log.close()
