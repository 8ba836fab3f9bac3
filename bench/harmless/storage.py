"""What is around an odd job: its disks, shared memory and clock, and other people's files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.benchmark import NotRun
from bench.harmless.disturbing import Step
from bench.harmless.job import Run

SHIMS = Path(__file__).with_name("shims")
MNT_DETACH = 2


def small_shared_memory(megabytes: int) -> Step:
    """A /dev/shm of its own, as in a container."""

    def before(run: Run) -> None:
        _must_be_root()
        mount = f'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$@"'
        run.prefix += ["unshare", "-m", "sh", "-c", mount, "sh"]

    return before


def small_disk(name: str, size: str) -> Step:
    """`name`: state or checkpoints; a file system of its own, with that much room."""

    def before(run: Run) -> None:
        where = run.directory / name
        where.mkdir(exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where))
        run.stack.callback(_unmount, where)

    return before


def full_disk(name: str, size: str) -> Step:
    """The same, with no room left from the start, as where a quota is used up."""

    def before(run: Run) -> None:
        small_disk(name, size)(run)
        run.plant(name)
        _fill(run.directory / name)

    return before


def disk_fills_up(name: str) -> Step:
    def during(run: Run) -> None:
        run.await_steps()
        _fill(run.directory / name)
        run.must_run_still()

    return during


def disk_turns_read_only(name: str) -> Step:
    """For whoever opens a file from now on; what is open for writing keeps a mount from that."""

    def during(run: Run) -> None:
        run.await_steps()
        where = run.directory / name
        _mount("--bind", str(where), str(where))
        run.stack.callback(_unmount, where)
        _mount("-o", "remount,ro,bind", str(where))
        try:
            (where / "probe").write_bytes(b"")
        except OSError as error:
            if error.errno == errno.EROFS:
                return run.must_run_still()
        raise NotRun(f"{name} did not turn read-only")

    return during


def slow_storage(run: Run) -> None:
    """Every fsync takes 1.5 s longer, in every process."""
    _preload(run, "slow_sync")


def slow_reads(run: Run) -> None:
    """Below the checkpoints' directory looking, opening and reading take 50 ms longer each."""
    run.more["ODD_SLOW_BELOW"] = str(run.checkpoints)
    _preload(run, "slow_reads")


def own_clock(run: Run) -> None:
    """Its processes read the wall clock as so many seconds beside the machine's."""
    _offset_file(run).write_bytes((0).to_bytes(8, sys.byteorder, signed=True))
    run.more["ODD_CLOCK"] = str(_offset_file(run))
    _preload(run, "own_clock")


def clock_jumps(hours: float) -> Step:
    """The wall clock of everything; the monotonic one goes on."""

    def during(run: Run) -> None:
        run.await_steps()
        must_be_loaded(run)
        seconds = round(hours * 3600)
        with _offset_file(run).open("r+b") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))
        command = [sys.executable, "-S", "-c", "import time; print(time.time())"]
        told = subprocess.run(
            command, env=run.environment("a"), capture_output=True, text=True, check=True
        )
        if abs(float(told.stdout) - time.time() - seconds) > 10:
            raise NotRun(f"the clock did not jump: {told.stdout}")
        time.sleep(1.0)
        run.must_run_still()

    return during


def must_be_loaded(run: Run) -> None:
    """NotRun when its ranks don't have what is preloaded."""
    run.await_steps()
    if run.more["LD_PRELOAD"] not in Path(f"/proc/{run.rank_pid(0)}/maps").read_text():
        raise NotRun("the ranks run without what was to be preloaded")


def foreign_folders(run: Run) -> None:
    """Other tools' checkpoints where Holdfast's go, two days old."""
    old_s = time.time() - 2 * 86_400
    for name in ("step-1000", "step-00001000", "step-00000002-mine", "best", "step-500-final"):
        folder = run.checkpoints / name
        folder.mkdir()
        for file in ("__0_0.distcp", ".metadata", "x.pt"):
            path = folder / file
            run.foreign[path] = f"{name}/{file}".encode() * 100
            path.write_bytes(run.foreign[path])
            os.utime(path, (old_s, old_s))
        os.utime(folder, (old_s, old_s))


def _preload(run: Run, name: str) -> None:
    library, source = str(run.directory / f"{name}.so"), str(SHIMS / f"{name}.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise NotRun(f"cc: {built.stderr.strip()}")
    run.more["LD_PRELOAD"] = library


def _offset_file(run: Run) -> Path:
    return run.directory / "clock"


def _mount(*words: str) -> None:
    _must_be_root()
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRun(f"mount: {done.stderr.strip()}")


def _must_be_root() -> None:
    if os.geteuid():
        raise NotRun("mounting needs root")


def _unmount(where: Path) -> None:
    ctypes.CDLL(None).umount2(str(where).encode(), MNT_DETACH)


def _fill(where: Path) -> None:
    with contextlib.suppress(OSError), (where / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    if os.statvfs(where).f_bavail:
        raise NotRun(f"{where.name} did not fill up")
