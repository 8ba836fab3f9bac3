"""Which processes are ranks, told from outside, on a frozen /proc and on this machine's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.components.gpu.ownership import busy_by_pid
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.linux.sockets import parse_unread, read_unread_bytes
from holdfast_sidecar.ranks.unhooked import (
    CandidateProcess,
    OutsideProbe,
    OutsideRank,
    choose_ranks,
    find_ranks,
    parse_io,
    read_status,
)

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid out inode
   0: 0100007F:8F1B 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 11 1
   1: 0100007F:8F1B 0100007F:9C40 01 00000000:00011170 00:00000000 00000000     0        0 12 1
   2: 0100007F:9C40 0100007F:8F1B 01 00000000:00000000 00:00000000 00000000     0        0 13 1
"""


def process(pid: int, parent: int, *command: str, **environ: str) -> CandidateProcess:
    return CandidateProcess(pid, parent, 1000 + pid, command, environ)


def chosen(roots: set[int], *processes: CandidateProcess) -> list[tuple[int, int]]:
    found = choose_ranks({one.pid: one for one in processes}, roots)
    return [(one.rank, one.pid) for one in found]


def test_ranks_below_a_launcher_are_found_by_their_environments() -> None:
    assert chosen(
        {10},
        process(10, 1, "mpirun", "-n", "2", "python", "train.py"),
        process(11, 10, "python", "train.py", OMPI_COMM_WORLD_RANK="1"),
        process(12, 10, "python", "train.py", OMPI_COMM_WORLD_RANK="0"),
        process(13, 12, "python", "-c", "worker", OMPI_COMM_WORLD_RANK="0"),
        process(20, 1, "python", "other.py", OMPI_COMM_WORLD_RANK="5"),
    ) == [(0, 12), (1, 11)]


def test_a_shell_or_a_launcher_between_is_no_rank() -> None:
    slurm = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}
    assert chosen(
        {30},
        process(30, 1, "slurmstepd"),
        process(31, 30, "bash", "-c", "torchrun", **slurm),
        process(32, 31, "python", "/usr/bin/torchrun", "train.py", **slurm),
        process(33, 32, "python", "train.py", **slurm, RANK="6", LOCAL_RANK="0"),
        process(34, 32, "python", "train.py", **slurm, RANK="7", LOCAL_RANK="1"),
    ) == [(6, 33), (7, 34)]


def test_processes_without_a_word_of_ranks_are_numbered_as_they_started() -> None:
    assert chosen({41, 40}, process(41, 1, "train"), process(40, 1, "train")) == [(0, 40), (1, 41)]
    assert chosen({41}, process(41, 1, "train"), process(40, 1, "train")) == [(0, 41)]
    assert chosen(set(), process(41, 1, "train")) == []


def test_neither_a_shell_nor_a_loaders_worker_passes_for_a_rank() -> None:
    script = ("python", "train.py")
    processes = (
        process(50, 1, "bash", "-c", "python train.py"),
        process(51, 50, *script),
        process(52, 51, *script),
        process(53, 1, *script),
        process(54, 1, "python", "/usr/bin/torchrun", "train.py"),
    )
    assert chosen({50, 51, 52, 53, 54}, *processes) == [(0, 51), (1, 53)]
    assert chosen({50}, *processes) == [(0, 50)]


def test_a_process_is_as_busy_as_its_busiest_gpu() -> None:
    gpus = (
        Gpu(0, "a", "", "", values={Signal.BUSY: 0.2}, users=(GpuUser(7), GpuUser(8))),
        Gpu(1, "b", "", "", values={Signal.BUSY: 0.9}, users=(GpuUser(7),)),
        Gpu(2, "c", "", "", users=(GpuUser(9),)),
    )
    assert busy_by_pid(GpuReading(is_present=True, gpus=gpus)) == {7: 0.9, 8: 0.2}


def test_unread_bytes_are_those_of_connections() -> None:
    assert parse_unread(TABLE) == {"12": 70_000, "13": 0}
    assert parse_io("rchar: 10\nwchar: 5\nsyscr: 3\n") == 15
    assert parse_io("") == 0


def test_what_a_peer_sent_and_this_process_has_not_read_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        with sender, receiver:
            before = read_unread_bytes(Path("/proc"), os.getpid())
            sender.sendall(b"x" * 5000)
            assert read_unread_bytes(Path("/proc"), os.getpid()) - before == 5000
    assert read_unread_bytes(Path("/proc"), 2**22 + 1) == 0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "input()  # a rank for test_outside"]
    environment = {**os.environ, "RANK": "4", "LOCAL_RANK": "1"}
    started = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    yield started
    started.kill()
    started.wait()


def test_a_process_is_found_by_its_command_and_followed_to_its_end(
    child: subprocess.Popen[bytes],
) -> None:
    (found,) = find_ranks((), "a rank for test_outside", os.getuid())
    assert (found.rank, found.local_rank, found.pid) == (4, 1, child.pid)
    assert find_ranks((child.pid,), None, os.getuid()) == (found,)
    assert find_ranks((child.pid,), None, os.getuid() + 1) == ()
    probe = OutsideProbe((found,))
    assert not probe.read(1.0)[0].is_gone
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert probe.read(2.0)[0].state == "T"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert probe.read(3.0)[0].is_gone


def test_another_process_with_the_same_pid_is_not_the_rank() -> None:
    status = read_status(Path("/proc") / str(os.getpid()))
    assert status is not None
    other = OutsideRank(0, 0, os.getpid(), status.start_ticks + 1)
    assert OutsideProbe((other,)).read(0.0)[0].is_gone
