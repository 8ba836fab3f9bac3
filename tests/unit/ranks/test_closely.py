"""What the kernel doesn't show proves nothing: a /proc made by hand."""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ranks.scene import look

from holdfast_sidecar.linux.process import ProcDirectory
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import RESTED_LOOKS, Inspection
from holdfast_sidecar.ranks.inspection import CloserProbe
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.stall import proof_of_stall

PID = 1000
LOCKED = "202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe10 0x7f5d20\n"
STAT = "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 77 0 0 {zeros} {status}\n"


@pytest.fixture(autouse=True)
def on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    add(tmp_path, PID, "python")
    return tmp_path


def add(proc: Path, pid: int, name: str, call: str | None = LOCKED, children: str = "") -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    if call is not None:
        (task / "syscall").write_text(call)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    zeros = " ".join(["0"] * 28)
    (proc / str(pid) / "stat").write_text(STAT.format(pid=pid, name=name, zeros=zeros, status=0))


def seen(proc: Path, suspect: RankLook | None = None) -> Inspection | None:
    probe, asked = CloserProbe(proc), look(0.0) if suspect is None else suspect
    known = [probe.look([asked], number / 2) for number in range(1, RESTED_LOOKS + 2)]
    return known[-1].get(0)


def is_proven(proc: Path) -> bool:
    return bool(proof_of_stall(seen(proc), 120.0))


def test_a_lock_in_a_process_that_is_seen_whole_is_proof(proc: Path) -> None:
    assert is_proven(proc)


def test_calls_that_may_not_be_read_prove_nothing(proc: Path) -> None:
    (proc / f"{PID}/task/{PID}/syscall").unlink()
    assert not is_proven(proc)


def test_nor_does_a_lock_on_another_kind_of_machine(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not is_proven(proc)


@pytest.mark.parametrize("place", ["do_freezer_trap", "__refrigerator"])
def test_nor_where_a_frozen_control_group_keeps_it(proc: Path, place: str) -> None:
    """It may have been in a lock for a moment when that was frozen."""
    (proc / f"{PID}/task/{PID}/wchan").write_text(place)
    assert not is_proven(proc)


def test_nor_a_kernel_that_lists_no_children(proc: Path) -> None:
    (proc / f"{PID}/task/{PID}/children").unlink()
    assert not is_proven(proc)


def test_nor_more_children_or_threads_than_are_looked_at(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proc / f"{PID}/task/{PID}/children").write_text(" ".join(map(str, range(2000, 2064))))
    assert not is_proven(proc)
    (proc / f"{PID}/task/{PID}/children").write_text("")
    monkeypatch.setattr("holdfast_sidecar.ranks.inspection.MOST_THREADS", 1)
    assert not is_proven(proc)


@pytest.mark.parametrize(("name", "proven"), [("pt_data_worker", True), ("wandb-core", False)])
def test_of_children_that_may_not_be_seen_only_torchs_workers_rest(
    proc: Path, name: str, proven: bool
) -> None:
    (proc / f"{PID}/task/{PID}/children").write_text("2000")
    add(proc, 2000, name, call=None)
    assert is_proven(proc) is proven


def add_thread(proc: Path, number: int, name: str, call: str) -> None:
    task = proc / str(PID) / "task" / str(number)
    task.mkdir()
    (task / "syscall").write_text(call)
    (task / "comm").write_text(f"{name}\n")


READING = "0 {descriptor:#x} 0x7f00 0x1 0x0 0x0 0x0 0x7ffe10 0x7f5d20\n"
UNIX = "Num RefCount Protocol Flags Type St Inode Path\n"
CONNECTED = "0: 3 0 0 1 03 {inode}\n"
LISTENING = "0: 2 0 00010000 1 01 {inode} /run/x\n"
NOBODYS = 4_000_000_000
"""An inode that no socket has: what is at its other end can't be told."""


@pytest.mark.parametrize(
    ("line", "name", "proven"),
    [
        (CONNECTED, "logger", False),
        (CONNECTED, "pt_autograd_0", False),
        (LISTENING, "dashboard", True),
        ("", "netlink", True),
    ],
)
def test_a_thread_that_awaits_an_answer_of_another_process_of_this_machine_is_at_work(
    proc: Path, line: str, name: str, proven: bool
) -> None:
    """And one that only listens for whoever may come is not."""
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/7").symlink_to(f"socket:[{NOBODYS}]")
    (proc / f"{PID}/net").mkdir()
    (proc / f"{PID}/net/unix").write_text(UNIX + line.format(inode=NOBODYS))
    add_thread(proc, 1001, name, READING.format(descriptor=7))
    assert is_proven(proc) is proven


def test_a_thread_of_the_backward_pass_that_waits_for_its_gpu_is_at_work(proc: Path) -> None:
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/7").symlink_to("/dev/nvidia0")
    add_thread(proc, 1001, "pt_autograd_0", READING.format(descriptor=7))
    assert not is_proven(proc)


MAPS = "7f2c0000-7f2d0000 r-xp 0000 00:1f 99 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95\n"


@pytest.mark.parametrize(("address", "proven"), [(0x7F2C1234, False), (0x7F2D0000, True)])
def test_a_lock_in_the_driver_of_its_gpu_is_no_proof(
    proc: Path, address: int, proven: bool
) -> None:
    """As with cudaDeviceScheduleBlockingSync, which waits for the GPU without using a CPU."""
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/9").symlink_to("/dev/nvidiactl")
    (proc / f"{PID}/maps").write_text(MAPS)
    stack = struct.pack("<4Q", 0, 1, address, 2)
    with (proc / f"{PID}/mem").open("wb") as memory:
        memory.seek(0x7FFE10)  # the stack pointer in LOCKED
        memory.write(stack)
    assert is_proven(proc) is proven


@pytest.mark.parametrize(
    ("place", "proven"),
    [("anon_pipe_read", True), ("rpc_wait_bit_killable", False), ("0", False)],
)
def test_a_fifo_is_known_by_where_its_reader_waits_in_the_kernel(
    proc: Path, place: str, proven: bool
) -> None:
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/7").symlink_to("/data/part-7")
    add_thread(proc, 1001, "reader", READING.format(descriptor=7))
    (proc / f"{PID}/task/1001/wchan").write_text(place)
    assert is_proven(proc) is proven


def test_who_polls_waits_for_no_file_whatever_its_path(proc: Path) -> None:
    """Files are always ready."""
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/7").symlink_to("/run/control")
    (proc / f"{PID}/mem").write_bytes(struct.pack("<ihh", 7, 1, 0))
    add_thread(proc, 1001, "control", "7 0x0 0x1 0xffffffff 0x0 0x0 0x0 0x7ffe10 0x7f5d20\n")
    assert is_proven(proc)


def test_of_files_that_a_rank_holds_open_no_file_system_is_asked(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may be away, and then the question would never be answered."""
    (proc / f"{PID}/fd").mkdir()
    for descriptor, target in ((3, "/mnt/data/part-7"), (9, "/dev/nvidiactl")):
        (proc / f"{PID}/fd/{descriptor}").symlink_to(target)
    add_thread(proc, 1001, "reader", READING.format(descriptor=3))
    (proc / f"{PID}/maps").write_text(MAPS)
    stat, asked = os.stat, list[str]()

    def spy(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        asked.append(str(path))
        return stat(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", spy)
    seen(proc)
    assert asked
    assert not [path for path in asked if "/fd/" in path]


UNTIL = "202 0x7f00 0x80 0x0 0x200 0x0 0xffffffff 0x7ffe10 0x7f5d20\n"
MAPPING = "9 0x0 0x1000 0x1 0x2 0x7 0x0 0x7ffe10 0x7f5d20\n"


@pytest.mark.parametrize(
    ("call", "ends_s", "where"),
    [(READING.format(descriptor=9), 30.0, Where.LOCK), (MAPPING, 0.0, Where.DEVICE)],
)
def test_the_memory_of_a_process_that_maps_a_file_is_left_alone(
    proc: Path, call: str, ends_s: float, where: Where
) -> None:
    """It is locked meanwhile, for as long as the file's server doesn't answer."""
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/9").symlink_to("/dev/nvidiactl")
    (proc / f"{PID}/maps").write_text(MAPS)
    with (proc / f"{PID}/mem").open("wb") as memory:
        memory.seek(0x200)  # the timer in UNTIL
        memory.write(struct.pack("<qq", 30, 0))
        memory.seek(0x7FFE10)
        memory.write(struct.pack("<2Q", 0, 1))
    (proc / f"{PID}/task/{PID}/syscall").write_text(UNTIL)
    add_thread(proc, 1001, "mapper", call)
    wait = ProcDirectory(proc / str(PID)).wait(PID, 0.0)
    assert wait is not None
    assert (wait.where, wait.ends_unaided_s) == (where, ends_s)


def test_one_thread_at_work_is_enough_and_no_further_one_is_looked_at(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1001, 1002, 1003):
        add_thread(proc, number, "uploader", "257 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffe10 0x7f5d20\n")
    wait, asked = ProcDirectory.wait, list[int]()

    def spy(self: ProcDirectory, thread: int, now_s: float) -> ThreadWait | None:
        asked.append(thread)
        return wait(self, thread, now_s)

    monkeypatch.setattr(ProcDirectory, "wait", spy)
    known = CloserProbe(proc).look([look(0.0)], 1.0)
    assert known[0].look.at_work == "thread uploader waits for storage"
    assert sorted(asked) == [PID, 1001]


def test_nor_is_it_where_the_stack_may_not_be_read(proc: Path) -> None:
    (proc / f"{PID}/fd").mkdir()
    (proc / f"{PID}/fd/9").symlink_to("/dev/nvidiactl")
    (proc / f"{PID}/maps").write_text(MAPS)
    assert not is_proven(proc)


def test_a_pid_of_another_namespace_is_left_alone(proc: Path) -> None:
    assert seen(proc, replace(look(0.0), process=None)) is None


def test_what_was_seen_is_forgotten_once_the_rank_moves(proc: Path) -> None:
    probe, first = CloserProbe(proc), look(0.0)
    for now_s in (0.5, 1.0):
        known = probe.look([first], now_s)
    assert known[0].before is not None
    known = probe.look([look(1.0, step=11)], 1.1)
    assert (known[0].before, known[0].look.at_s) == (None, 1.1)
    assert probe.look([], 1.2) == {}


def test_it_looks_the_less_often_the_longer_the_silence(proc: Path) -> None:
    probe, silent = CloserProbe(proc), look(0.0)
    times = [0.1 * number for number in range(1, 900)]
    looked = {probe.look([silent], now_s)[0].look.at_s for now_s in times}
    early = [at_s for at_s in looked if at_s <= 3.0]
    late = [at_s for at_s in looked if at_s > 80.0]
    assert len(early) >= 10
    assert len(late) <= 3
