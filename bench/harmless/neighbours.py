"""Who else is there: other launches on the same Redis, another user in the same directories."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.benchmark import NotRun
from bench.harmless.job import Run
from bench.harmless.outcome import REFUSED
from bench.launch.processes import Launched

SOMEBODY = 65534
LIMIT_S = 90.0


def two_more_launches(run: Run) -> None:
    """One of the same script and node under another name, which runs; one without, refused."""
    run.await_steps()
    other, unnamed = run.directory / "other-out", run.directory / "unnamed-out"
    second = _launch(run, other, f"--job={run.mark}-second", "--nnodes=1", "--node=a")
    nameless = _launch(run, unnamed, "--nnodes=2", "--node=a")
    end_s = time.monotonic() + LIMIT_S
    while second.process.poll() is None and not (other / "step-0").exists():
        if time.monotonic() > end_s:
            break
        time.sleep(0.05)
    run.must_run_still()
    found = {"second": _code(second), "nameless": _code(nameless)}
    if found["second"] != 0 or not (other / "result-0.json").exists():
        run.seen.append(f"the second launch ended with {found['second']}: {second.tail(4)}")
    if found["nameless"] != REFUSED or len(nameless.tail()) != 1 or any(unnamed.iterdir()):
        run.seen.append(f"the nameless one ended with {found['nameless']}: {nameless.tail(4)}")


def _launch(run: Run, out: Path, *options: str) -> Launched:
    out.mkdir()
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    command = [holdfast, "run", *options, f"--redis={run.redis['a']}", "--nproc-per-node=1"]
    few = {"ODD_OUT": str(out), "ODD_STEPS": "40", "ODD_STEP_SECONDS": "0.01"}
    environment = {**run.environment("a"), **few}
    return Launched([*command, *run.training()], environment, run.directory)


def _code(launched: Launched) -> int | None:
    end_s = time.monotonic() + LIMIT_S
    while launched.process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.05)
    return launched.process.poll()


def somebody_in_shared_memory(run: Run) -> None:
    """Who made a directory there in our name."""
    shm = run.directory / "shm"
    run.options += ["--set", f"paths.shm_dir={shm}", "--set", "paths.shm_reserve_bytes=0"]
    _planted_by_somebody(run, shm, f"holdfast-{os.getuid()}/llama/a/thesis.txt")


def somebody_among_the_checkpoints(run: Run) -> None:
    """Whose directories have the names of checkpoints of ours."""
    for step in range(7, 80, 7):
        _planted_by_somebody(run, run.checkpoints, f"step-{step:08}-5eedf00d/thesis.txt")


def somebody_in_the_state(run: Run) -> None:
    """Who made the directory there that ours would be."""
    _planted_by_somebody(run, run.directory / "state", "holdfast/llama/thesis.txt")


def _planted_by_somebody(run: Run, where: Path, name: str) -> None:
    """A file below a directory in which everybody may write, as in /tmp."""
    if os.geteuid():
        raise NotRun("being another user needs root")
    where.mkdir(exist_ok=True)
    where.chmod(0o1777)
    run.directory.chmod(0o711)
    path = where / name
    content = b"months of work\n"
    program = 'mkdir -p "$(dirname "$1")" && printf "months of work\\n" >"$1"'
    somebody = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
    done = subprocess.run(
        [*somebody, "sh", "-c", program, "sh", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or path.stat().st_uid != SOMEBODY:
        raise NotRun(f"setpriv: {done.stderr.strip()}")
    run.foreign[path] = content
