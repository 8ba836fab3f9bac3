"""Runs the short set with each torch and Python that are promised, and writes docs/matrix.md.

Each pair gets a virtual environment of its own, removed after its run: torch from the package index
is some 6 GB with its CUDA libraries. `--ready PYTHON` takes an interpreter in whose environment
torch, pytest and Holdfast's dependencies are installed already; it may be given several times. The
page is written after each row: what was found stays found when a later one breaks off.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "matrix.md"

TORCHES = ("torch==2.10.*", "torch==2.13.0", "torch>=2.13")
"""The oldest that is promised, the one of CI, the newest there is."""

PYTHONS = ("3.11", "3.12", "3.13")

TESTS = {
    "private parts of torch": "tests/unit/launcher/test_torch_parts.py",
    "start, kill, resume, checkpoint, stop": "tests/end_to_end/run/test_whole_life.py",
    "hooks of an unmodified script": "tests/integration/hooks/test_zero_lines.py",
}

HEAD = """# Versions

What `make matrix` found: each pair of Python and torch in an environment of its own, on the CPU. CI
runs one of them. Promised are Python 3.11 to 3.13 and torch 2.10 to 2.15. Below 2.10
`torch.load(weights_only=True)` can corrupt memory (CVE-2026-24747), so `holdfast run` refuses such
a torch with exit code 2; free-threaded builds of Python are refused likewise.

"""


class Row(NamedTuple):
    """One pair, and what each part of the set said."""

    python: str
    torch: str
    results: tuple[str, ...]


def main() -> int:
    """0 when everything that was run passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ready", action="append", default=[], metavar="PYTHON")
    ready = parser.parse_args().ready
    rows = written((run(python) for python in ready) if ready else run_all(), PAGE)
    print(PAGE.read_text())
    return 0 if all(re.match("passed", one) for row in rows for one in row.results) else 1


def written(found: Iterable[Row], to: Path) -> list[Row]:
    """All rows; the page holds each one as soon as it is there."""
    rows: list[Row] = []
    for row in found:
        rows.append(row)
        to.write_text(HEAD + page(rows, datetime.date.today()))
    return rows


def run_all() -> Iterator[Row]:
    """Every torch with the first Python that is here, the others with CI's torch."""
    here = [(version, python) for version in PYTHONS if (python := interpreter(version))]
    pairs = [(*one, torch) for one in here[:1] for torch in TORCHES]
    pairs += [(*one, TORCHES[1]) for one in here[1:]]
    for version, python, torch in pairs:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-matrix-"))
        try:
            yield run(install(python, torch, folder))
        except subprocess.CalledProcessError as error:
            yield not_run(version, torch, error)
        finally:
            shutil.rmtree(folder)


def interpreter(version: str) -> str:
    """One that runs and is of this version; empty: none. pyenv puts a shim on the path for each
    version that it has, which only says so where that version is not chosen."""
    kept = Path.home() / ".pyenv" / "versions"
    newest_first = sorted(kept.glob(f"{version}.*/bin/python{version}"), reverse=True)
    candidates = (shutil.which(f"python{version}"), *map(str, newest_first))
    return next((path for path in candidates if path and _version_of(path) == version), "")


def _version_of(python: str) -> str:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def install(python: str, torch: str, folder: Path) -> str:
    """An environment with this torch; its interpreter. Raises CalledProcessError."""
    made = str(folder / "bin" / "python")
    needed = [torch, "numpy", "pytest", "pytest-timeout", "-e", f"{REPOSITORY}[server]"]
    for command in (
        [python, "-m", "venv", str(folder)],
        [made, "-m", "pip", "install", "--quiet", *needed],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)
    return made


def not_run(version: str, torch: str, error: subprocess.CalledProcessError) -> Row:
    """The row of a pair of which there is no environment, with the installer's last words."""
    print(error.stderr, flush=True)
    said = (error.stderr or error.stdout or "").strip().splitlines() or [f"exit {error.returncode}"]
    last = said[-1].replace("|", "/")[:120]
    return Row(version, torch, (f"not installed: {last}", *["not run"] * (len(TESTS) - 1)))


def run(python: str) -> Row:
    """The whole set with this interpreter."""
    ask = "import platform, torch; print(platform.python_version(), torch.__version__)"
    try:
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        return not_run(_version_of(python) or python, "none", error)
    version, torch = told.stdout.split()
    print(f"Python {version}, torch {torch}", flush=True)
    return Row(version, torch, tuple(test(python, path) for path in TESTS.values()))


def test(python: str, path: str) -> str:
    """`passed 25`, or the first that failed."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", path]
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=dict(os.environ), capture_output=True, text=True
    )
    print(ended.stdout, flush=True)
    if ended.returncode == 0:
        passed = re.search(r"(\d+) passed", ended.stdout)
        return f"passed {passed[1]}" if passed else "passed none"
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?(\w+)(?: |$)", ended.stdout, re.MULTILINE)
    return "failed: " + (", ".join(failed) or "not run")


def page(rows: list[Row], today: datetime.date) -> str:
    """The table, and what was left out."""
    lines = [f"Run on {today}.", "", f"| Python | torch | {' | '.join(TESTS)} |"]
    lines.append("|---" * (2 + len(TESTS)) + "|")
    lines += [f"| {row.python} | {row.torch} | {' | '.join(row.results)} |" for row in rows]
    seen = {".".join(row.python.split(".")[:2]) for row in rows}
    left_out = [version for version in PYTHONS if version not in seen]
    here = [version for version in left_out if interpreter(version)]
    absent = [version for version in left_out if version not in here]
    for why, versions in (("Not run", here), ("Not run, as there was no such interpreter", absent)):
        lines += ["", f"{why}: Python {', '.join(versions)}."] if versions else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
