"""Row `death`: a rank with much memory is killed; when its sidecar knows, when a pidfd tells."""

from __future__ import annotations

import json
import os
import queue
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench.benchmark import NotRun, Sample, Task
from bench.detection.names import DEATH, HOLDFAST
from bench.detection.peer_death import measure_peer
from bench.launch.contestants import NVRX, TORCHRUN

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]

RESIDENT_MIB = 4096
ROUNDS = 100
QUICK_ROUNDS = 10
PEER_ROUNDS = 5

SPARE_MIB = 1024
"""Of memory, beside what the victims take: one that the OOM killer took would be another row."""

START_LIMIT_S = 60.0
KNOWN_LIMIT_S = 5.0
PIDFD_LIMIT_S = 60.0

LONGEST_REST_S = 1.0
"""Between being watched and being killed, drawn by chance: two ticks of the sidecar."""


def tasks(quick: bool) -> list[Task]:
    """One sidecar, one victim after the other; the peers now and then."""
    own = Task(DEATH, DEATH, partial(measure, QUICK_ROUNDS if quick else ROUNDS))
    peers = [
        Task(
            DEATH,
            f"{DEATH}/{peer.name}/{number}",
            partial(measure_peer, peer, RESIDENT_MIB, number),
        )
        for number in range(PEER_ROUNDS)
        for peer in (TORCHRUN, NVRX)
    ]
    return [own] if quick else [own, *peers]


def measure(rounds: int, mebibytes: int = RESIDENT_MIB) -> list[Sample]:
    """A sample per victim."""
    _need_memory(mebibytes)
    with _directory() as folder, _sidecar(folder) as lines:
        return [_kill_one(folder, lines, attempt, mebibytes) for attempt in range(rounds)]


def _kill_one(
    folder: Path, lines: queue.Queue[dict[str, Any]], attempt: int, mebibytes: int
) -> Sample:
    sample: Sample = {"contestant": HOLDFAST, "round": attempt, "resident_mib": mebibytes}
    with _rank(folder, attempt, mebibytes) as rank:
        _wait_for(lines, "seen", attempt, START_LIMIT_S)
        handle = os.pidfd_open(rank.pid)
        try:
            time.sleep(0.1 + random.uniform(0, LONGEST_REST_S))
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            struck_ns = time.monotonic_ns()
            os.kill(rank.pid, signal.SIGKILL)
            if poll.poll(PIDFD_LIMIT_S * 1000):
                sample["pidfd_s"] = (time.monotonic_ns() - struck_ns) / 1e9
        finally:
            os.close(handle)
        known = _wait_for(lines, "crashed", attempt, KNOWN_LIMIT_S, must=False)
    if known is not None and "SIGKILL" in known["evidence"][0]:
        sample["known_s"] = (known["at_ns"] - struck_ns) / 1e9
    return sample


def _wait_for(
    lines: queue.Queue[dict[str, Any]], what: str, attempt: int, within_s: float, must: bool = True
) -> dict[str, Any] | None:
    deadline = time.monotonic() + within_s
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if (line["what"], line["attempt"]) == (what, attempt):
            return line
    if must:
        raise NotRun(f"the sidecar never said that rank {attempt} was {what}")
    return None


@contextmanager
def _directory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir="/dev/shm"))
    try:
        (folder / "pages").mkdir(mode=0o700)
        (folder / "state").mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _sidecar(folder: Path) -> Iterator[queue.Queue[dict[str, Any]]]:
    """What the sidecar says, line by line."""
    program = str(PROGRAMS / "watching_sidecar.py")
    with _started(program, str(folder / "pages"), str(folder / "state")) as process:
        lines: queue.Queue[dict[str, Any]] = queue.Queue()
        assert process.stdout is not None
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        yield lines


@contextmanager
def _rank(folder: Path, attempt: int, mebibytes: int) -> Iterator[subprocess.Popen[str]]:
    program = str(PROGRAMS / "dying_rank.py")
    with _started(program, str(folder / "pages"), str(attempt), str(mebibytes)) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise NotRun("the rank did not come up")
        yield process


@contextmanager
def _started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=PIDFD_LIMIT_S)


def _read(output: IO[str], lines: queue.Queue[dict[str, Any]]) -> None:
    for line in output:
        lines.put(json.loads(line))


def _need_memory(mebibytes: int) -> None:
    available = next(
        int(line.split()[1]) // 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    if available < mebibytes + SPARE_MIB:
        raise NotRun(f"{available} MiB of memory are available, {mebibytes + SPARE_MIB} are needed")
