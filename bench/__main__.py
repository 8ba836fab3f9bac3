"""`python -m bench NAME`: measure, judge, print, and leave bench/results/NAME.json."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.benchmark import Benchmark, NotRun, Sample, Task
from bench.figures import missed, table
from bench.machine import read_commit, read_machine
from bench.own_code import foreign_code
from bench.results import (
    FULL,
    QUICK,
    Run,
    Unfinished,
    borrowed,
    judged,
    read_samples,
    together,
    write_results,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BENCHMARKS = {
    "launch": "bench.launch.rows",
    "checkpoint": "bench.checkpoint.rows",
    "detection": "bench.detection.rows",
    "gpu-anatomy": "bench.gpu_anatomy.rows",
    "gpu-probe": "bench.gpu_probe.rows",
    "telemetry": "bench.telemetry.rows",
    "stragglers": "bench.stragglers.rows",
    "oncall": "bench.oncall.rows",
    "harmless": "bench.harmless.measuring",
    "house": "bench.house",
}
"""Name -> module that holds BENCHMARK; imported only when it is asked for."""
ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; exit code 1 when a goal was missed."""
    options = _parse(arguments)
    if options.name == ALL:
        return max(_main(name, options) for name in BENCHMARKS)
    return _main(options.name, options)


def _main(name: str, options: argparse.Namespace) -> int:
    benchmark: Benchmark = importlib.import_module(BENCHMARKS[name]).BENCHMARK
    if options.only is not None and options.only not in benchmark.rows:
        rows = ", ".join(benchmark.rows)
        print(f"bench: {name} has no row {options.only!r}; it has {rows}", file=sys.stderr)
        return 2
    if foreign := foreign_code():
        print(f"bench: {foreign}", file=sys.stderr)
        return 2
    run = Run(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=read_commit(ROOT),
        mode=QUICK if options.quick else FULL,
        only=options.only,
    )
    return _run(benchmark, run, resume=options.resume)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, ALL])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="Holdfast's rows only, at most 5 minutes; the peers' are those of the last full run",
    )
    parser.add_argument("--only", metavar="ROW", help="measure one row, keep the others")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut")
    return parser.parse_args(arguments)


def _run(benchmark: Benchmark, run: Run, *, resume: bool) -> int:
    path = RESULTS / f"{benchmark.name}.json"
    unfinished = Unfinished(RESULTS / f"{benchmark.name}.unfinished")
    samples: list[Sample] = []
    if resume:
        run, samples = unfinished.read(run)
    tasks = [t for t in benchmark.tasks(run.mode == QUICK) if run.only in (None, t.row)]
    done = {sample["key"] for sample in samples}
    for number, task in enumerate(tasks, start=1):
        if task.key in done:
            continue
        started = time.monotonic()
        new = [run.stamp(task.row, task.key, sample) for sample in _measure(task)]
        samples.extend(new)
        unfinished.write(run, samples)
        _tell(f"[{number}/{len(tasks)}] {task.key}: {time.monotonic() - started:.1f} s", new)
    everything = together(read_samples(path), samples, run)
    considered = judged(everything)
    figures = benchmark.figures(considered)
    write_results(
        path,
        {
            "name": benchmark.name,
            "machine": read_machine(),
            "commit": run.commit,
            "figures": [figure.as_json() for figure in figures],
            "raw": everything,
        },
    )
    unfinished.remove()
    print(table(figures))
    note = borrowed(considered, run)
    if note:
        print(note)
    return 1 if missed(figures) else 0


def _measure(task: Task) -> list[Sample]:
    try:
        return task.measure()
    except NotRun as reason:
        return [{"not_run": str(reason)}]


def _tell(line: str, samples: Sequence[Sample]) -> None:
    reasons = {str(sample["not_run"]) for sample in samples if "not_run" in sample}
    note = f" not run: {'; '.join(sorted(reasons))}" if reasons else ""
    print(line + note, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # As Ctrl-C does: whoever ends the benchmark also ends the jobs that it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    raise SystemExit(main())
