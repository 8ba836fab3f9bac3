"""Samples on disk: every one is kept as soon as it is measured, and runs are put together.

A full run replaces what was there; `--only ROW` replaces that row; a quick run is laid over the
last full one, whose samples of the peers it borrows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.benchmark import Sample

FULL = "full"
QUICK = "quick"


@dataclass(frozen=True)
class Run:
    """One invocation: when it started, on which commit, and what was asked for."""

    started: str
    commit: str
    mode: str
    only: str | None

    def stamp(self, row: str, key: str, sample: Sample) -> Sample:
        """A sample that knows where it comes from."""
        origin = {"row": row, "key": key, "mode": self.mode}
        return {**origin, "run": self.started, "commit": self.commit, **sample}


def together(before: Sequence[Sample], new: Sequence[Sample], run: Run) -> list[Sample]:
    """What the results file holds after `run`."""
    if run.mode == QUICK:
        kept = [sample for sample in before if sample["mode"] == FULL]
    elif run.only is None:
        kept = []
    else:
        kept = [s for s in before if s["mode"] == FULL and s["row"] != run.only]
    return [*kept, *new]


def judged(samples: Sequence[Sample]) -> list[Sample]:
    """Of each row and contestant the quick samples where there are any, else those of the full run.

    Samples of what could not be run hold no measurement and are left out.
    """
    quick = {_who(sample) for sample in samples if sample["mode"] == QUICK}
    return [
        sample
        for sample in samples
        if "not_run" not in sample and (sample["mode"] == QUICK or _who(sample) not in quick)
    ]


def borrowed(samples: Sequence[Sample], run: Run) -> str:
    """One line that says which samples are from an earlier run; empty when none are."""
    older = sorted({(s["run"], s["commit"]) for s in samples if s["run"] != run.started})
    if not older:
        return ""
    runs = ", ".join(f"{started} at {commit}" for started, commit in older)
    rows = len({_who(sample) for sample in samples if sample["run"] != run.started})
    return f"{rows} rows were not measured now and are taken from the last full run: {runs}"


def _who(sample: Sample) -> tuple[str, str, str]:
    return sample["row"], sample.get("contestant", ""), sample.get("job", "")


def read_samples(path: Path) -> list[Sample]:
    """The samples of a results file; none when it is not there."""
    content = read_content(path)
    return list(content.get("raw", []))


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Write under a temporary name, then rename: a cut run leaves the old file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".writing")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


@dataclass(frozen=True)
class Unfinished:
    """The samples of a run that is still going on, or was cut."""

    path: Path

    def write(self, run: Run, samples: Sequence[Sample]) -> None:
        """Keep what was measured so far."""
        write_results(
            self.path,
            {
                "started": run.started,
                "commit": run.commit,
                "mode": run.mode,
                "only": run.only,
                "raw": list(samples),
            },
        )

    def read(self, run: Run) -> tuple[Run, list[Sample]]:
        """The cut run that asked for the same, and its samples; else `run` itself and none.

        What could not be run is tried again.
        """
        content = read_content(self.path)
        if (content.get("mode"), content.get("only")) != (run.mode, run.only) or not content:
            return run, []
        cut = Run(content["started"], content["commit"], run.mode, run.only)
        return cut, [sample for sample in content["raw"] if "not_run" not in sample]

    def remove(self) -> None:
        """The run is finished."""
        self.path.unlink(missing_ok=True)


def read_content(path: Path) -> dict[str, Any]:
    """A results file; empty when it is not there."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return content if isinstance(content, dict) else {}
