"""`bench house`: how the code is laid out, and what a sidecar's start costs beside what it cost.

Before is the last revision without rooms, unpacked beside; both starts take turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.benchmark import Benchmark, NotRun, Sample, Task
from bench.figures import Figure, at_least, at_most, middle

ROOT = Path(__file__).parents[1]
SIDECAR = ROOT / "sidecar/holdfast_sidecar"
COUNTED = ("sidecar", "hooks", "bench", "testing", "scripts")
BEFORE = "26ee4a6c"

STRUCTURE, START = "structure", "start"
NOW = "now"
LIMITS = {
    "modules": 330,
    "rooms": 14,
    "at the top": 8,
    "ignored imports": 12,
    "lines": 107_000,
}

ROUNDS, QUICK_ROUNDS = 9, 3
LIMIT_S = 30.0


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    rounds = range(QUICK_ROUNDS if quick else ROUNDS)
    return [
        Task(STRUCTURE, STRUCTURE, count),
        *(Task(START, f"{START} {number}", both_starts) for number in rounds),
    ]


def count() -> list[Sample]:
    """Modules, rooms, lines, ignored imports; tests hold all but the lines to the same limits."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ignored = [one for each in contracts["contracts"] for one in each.get("ignore_imports", [])]
    paths = [path for root in COUNTED for path in (ROOT / root).rglob("*.py")]
    rooms = [path for path in SIDECAR.iterdir() if any(path.glob("*.py"))]
    return [
        {
            "modules": len(list(SIDECAR.rglob("*.py"))),
            "rooms": len(rooms),
            "at the top": len(list(SIDECAR.glob("*.py"))),
            "ignored imports": len(ignored),
            "lines": sum(len(path.read_text().splitlines()) for path in paths),
        }
    ]


def both_starts() -> list[Sample]:
    """CPU seconds of a sidecar until it says that it watches, of the old code and of this."""
    with _before() as before:
        return [
            {"who": who, "cpu_s": _start(root)} for who, root in ((BEFORE, before), (NOW, ROOT))
        ]


@contextmanager
def _before() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "before"
        packed = f"{there}.tar"
        command = ["git", "archive", f"--output={packed}", BEFORE, "sidecar", "hooks"]
        if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0:
            raise NotRun(f"the repository here does not have {BEFORE}")
        shutil.unpack_archive(packed, there)
        _start(there)  # so that both have their bytecode
        yield there


def _start(root: Path) -> float:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        # Where Python may not write bytecode, the fresh worktree would be compiled at each start.
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment = {
            **inherited,
            "PYTHONPATH": f"{root}/sidecar:{root}/hooks",
            "HOLDFAST_SET_PATHS_SHM_DIR": folder,
            "HOLDFAST_SET_PATHS_STATE_DIR": f"{folder}/state",
            "HOLDFAST_SET_REDIS_URL": f"unix://{folder}/nobody.sock",
        }
        command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "sidecar", "--job=house"]
        with subprocess.Popen(
            [*command, "--node=a"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as sidecar:
            try:
                return _cpu_until(sidecar, Path(folder) / "state/house/a/sidecar.json")
            finally:
                sidecar.kill()


def _cpu_until(sidecar: subprocess.Popen[bytes], record: Path) -> float:
    end_s = time.monotonic() + LIMIT_S
    while not record.exists():
        if sidecar.poll() is not None or time.monotonic() > end_s:
            raise NotRun("the sidecar did not start")
        time.sleep(0.005)
    spent = psutil.Process(sidecar.pid).cpu_times()
    return spent.user + spent.system


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What they come to."""
    spent = {who: [s["cpu_s"] for s in samples if s.get("who") == who] for who in (BEFORE, NOW)}
    less = None
    if spent[BEFORE] and spent[NOW]:
        less = 100 * (1 - statistics.median(spent[NOW]) / statistics.median(spent[BEFORE]))
    return [
        *_structure(samples),
        middle(f"start of a sidecar at {BEFORE}", "CPU s", spent[BEFORE]),
        middle("start of a sidecar", "CPU s", spent[NOW]),
        at_least("start of a sidecar takes less CPU than before", "%", less, 25),
    ]


def _structure(samples: Sequence[Sample]) -> Iterator[Figure]:
    counted = next((one for one in samples if "modules" in one), {})
    for name, limit in LIMITS.items():
        yield at_most(name, "", counted.get(name), limit)


BENCHMARK = Benchmark(name="house", rows=(STRUCTURE, START), tasks=tasks, figures=figures)
