"""Starts a worker per device and tells their results: `python -m …health_check.stress`.

Reads one line, an Errand; says what it is at in lines of words, and at the end a Result as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child
from holdfast_sidecar.components.health_check.stress_request import Result, StressRequest
from holdfast_sidecar.linux import threads as priority
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.codec import decode, encode

Worker = subprocess.Popen[str]

LONGEST_LINE = 200
"""Of what a worker said last: it is told to people, in a table."""


def main() -> int:
    """Run the errand."""
    errand = decode(StressRequest, sys.stdin.readline())
    if errand is None:
        print("this is started by a sidecar, which tells it what for", file=sys.stderr)
        return 2
    die_with(errand.asker_pid)
    priority.give_back()
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        workers = [_start(errand, rank, Path(folder)) for rank in range(errand.devices)]
        print(encode(gather(errand, workers, Path(folder))), flush=True)
    return 0


def _start(errand: StressRequest, rank: int, folder: Path) -> Worker:
    meeting = str(folder / "meeting")
    told = [str(rank), str(errand.devices), errand.device, str(errand.part_s), meeting]
    threads = max(1, len(os.sched_getaffinity(0)) // errand.devices)
    with _errors(folder, rank).open("wb") as errors:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "holdfast_sidecar.components.health_check.stress.worker",
                str(os.getpid()),
                *told,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )


def _errors(folder: Path, rank: int) -> Path:
    """A file, because nobody reads while it writes."""
    return folder / f"errors-{rank}"


def gather(errand: StressRequest, workers: Sequence[Worker], folder: Path) -> Result:
    """All workers' results as one: what went wrong on any, the figures of the slowest."""
    results: list[Result] = []
    for rank, worker in enumerate(workers):
        result = _follow(worker, tells=rank == 0)
        if result is None or result.error:
            for other in workers:
                signal_child(own_child(other))
            why = _why_it_failed(worker, _errors(folder, rank)) if result is None else result.error
            return Result(error=f"{errand.device} {rank}: {why}")
        results.append(result)
    names = {name for result in results for name in result.figures}
    return Result(
        wrong=[
            f"{errand.device} {rank}: {wrong}"
            for rank, result in enumerate(results)
            for wrong in result.wrong
        ],
        figures={
            name: min(result.figures[name] for result in results if name in result.figures)
            for name in sorted(names)
        },
        model=results[0].model,
    )


def _why_it_failed(worker: Worker, errors: Path) -> str:
    """How it ended and its last line; the whole of it goes where our own errors go."""
    told = errors.read_text(errors="replace")
    sys.stderr.write(told)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    said = f": {lines[-1][:LONGEST_LINE]}" if lines else ""
    return f"exit code {worker.wait()}{said}"


def _follow(worker: Worker, tells: bool) -> Result | None:
    assert worker.stdout is not None
    for line in worker.stdout:
        if (result := decode(Result, line)) is not None:
            return result
        if tells:
            print(line.strip(), flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())


# A node's test by work: products, memory, sums over its ranks. A child with torch, for seconds.
#
# Nothing on the sidecar's path imports this.
