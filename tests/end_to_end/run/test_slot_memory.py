"""Where snapshots lie: it outlives ranks and sidecar, and is the kernel's when all are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.end_to_end.run.conftest import PATIENCE_S, Ground, Launched

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

TRAIN = """
import time
from pathlib import Path
import torch
import torch.distributed as dist
import holdfast

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(1024, 1024)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
job = holdfast.attach(model=model, optimizer=optimizer)
start = job.resume()
out = Path(os.environ["OUT"])
(out / f"start-{attempt}-{rank}").write_text(str(start))
for step in job.steps(range(1_000_000)):
    optimizer.zero_grad()
    model(torch.randn(8, 1024)).square().mean().backward()
    optimizer.step()
    (out / f"step-{attempt}-{rank}").write_text(str(step))
    if (out / "grow").exists():
        grown = torch.ones(int((out / "grow").read_text()), dtype=torch.uint8)
        (out / "grow").rename(out / "has-grown")
    time.sleep(0.02)
"""

SLOT_BYTES = 3 * 4 * 1024 * 1024
"""Weights and two moments; what else lies in shared memory is some ten kilobytes a rank."""


def await_that(holds: Callable[[], Any], what: str, launched: Launched) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert launched.process.poll() is None, f"ended before {what}: {launched.wait()}"
        assert time.monotonic() < until, f"waited for {what}"
        time.sleep(0.05)


def number(path: Path) -> int:
    text = path.read_text() if path.exists() else ""
    return int(text) if text else -1


def started(ground: Ground, group: Path | None = None) -> Launched:
    ground.script("train.py", TRAIN)
    launched = ground.start(
        "--nproc-per-node=1", "--job=slots", "--set=snapshot.every_steps=1", "train.py"
    )
    if group is not None:
        (group / "cgroup.procs").write_text(str(launched.process.pid))
    await_that(lambda: len(linked(ground)) == 3, "slots", launched)
    await_that(lambda: number(ground.folder / "out" / "step-0-0") > 30, "steps", launched)
    return launched


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory control group (v1) of its own; what is in it in the end is killed."""
    root = Path("/sys/fs/cgroup/memory")
    if os.geteuid() or not (root / "cgroup.procs").exists():
        pytest.skip("needs root and memory control groups of version 1")
    made = root / f"holdfast-slots-{os.getpid()}"
    made.mkdir()
    yield made
    for pid in (made / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while (made / "cgroup.procs").read_text().strip() and time.monotonic() < until:
        time.sleep(0.05)
    made.rmdir()


def left(group: Path) -> int:
    """What the group may still take before the kernel kills somebody in it, bytes."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = int(stat["total_inactive_file"]) + int(stat["total_active_file"])
    limit, used = (
        int((group / f"memory.{name}_in_bytes").read_text()) for name in ("limit", "usage")
    )
    return limit - used + cached


def linked(ground: Ground) -> list[str]:
    """What the slots' names lead to."""
    return [os.readlink(path) for path in ground.shm.rglob("rank-*-slot-*") if path.is_symlink()]


def processes(launched: Launched) -> list[psutil.Process]:
    launcher = psutil.Process(launched.process.pid)
    return [launcher, *launcher.children(recursive=True)]


def of_name(launched: Launched, word: str) -> psutil.Process:
    return next(one for one in processes(launched) if word in one.cmdline())


def shared_bytes() -> int:
    """Of this machine: files in memory, with and without names."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))


def test_when_everything_is_killed_the_kernel_has_the_memory_again(ground: Ground) -> None:
    before = shared_bytes()
    launched = started(ground)
    assert shared_bytes() - before > 3 * SLOT_BYTES
    assert ground.shm.exists()
    everything = processes(launched)
    for process in everything:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended with the one before
            process.kill()
    launched.process.wait(30)
    psutil.wait_procs(everything, timeout=30)
    left = sum(path.lstat().st_blocks * 512 for path in ground.shm.rglob("*"))
    assert left < SLOT_BYTES / 4
    until = time.monotonic() + PATIENCE_S
    while shared_bytes() - before > SLOT_BYTES and time.monotonic() < until:
        time.sleep(0.1)
    assert shared_bytes() - before < SLOT_BYTES


def test_it_outlives_rank_and_sidecar_killed_together(ground: Ground) -> None:
    launched = started(ground)
    out = ground.folder / "out"
    sidecar = of_name(launched, "sidecar")
    rank = psutil.Process(launched.facts(0, 0)["pid"])
    sidecar.kill()
    rank.kill()
    done = number(out / "step-0-0")
    await_that(lambda: number(out / "start-1-0") >= 0, "the next attempt", launched)
    assert number(out / "start-1-0") >= done
    await_that(lambda: number(out / "step-1-0") > done + 5, "steps", launched)
    launched.process.send_signal(signal.SIGTERM)
    launched.wait()
    assert not any(path.startswith("/proc") for path in linked(ground))


@pytest.mark.root
def test_a_job_that_grows_to_its_limit_gets_the_memory_of_its_slots(
    ground: Ground, group: Path
) -> None:
    """Of a limit of 1,000 MB 95 are left, and a slot of 12.6 MB makes more than 100 of them."""
    (group / "memory.limit_in_bytes").write_text("1000M")
    launched = started(ground, group)
    out = ground.folder / "out"
    (out / "drawn").write_text(str(left(group) - 95 * 1024 * 1024))
    (out / "drawn").rename(out / "grow")
    await_that(lambda: (out / "has-grown").exists(), "the job has grown", launched)
    grown_left = left(group)
    await_that(lambda: 0 < len(linked(ground)) < 3, "fewer slots", launched)
    await_that(lambda: left(group) > grown_left + SLOT_BYTES / 2, "memory given back", launched)
    step = number(out / "step-0-0")
    await_that(lambda: number(out / "step-0-0") > step + 20, "steps", launched)
    launched.process.send_signal(signal.SIGTERM)
    launched.wait()
    assert not (out / "start-1-0").exists()
    (log,) = (ground.folder / "state").rglob("sidecar.log")
    assert "memory was left to the job, so snapshots take less" in log.read_text()
