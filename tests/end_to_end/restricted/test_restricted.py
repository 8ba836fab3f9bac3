"""Jobs run with fewer rights, and `holdfast doctor` says in the same surroundings what is lost."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.restricted.surroundings import Surroundings, may_make_them

pytestmark = [
    pytest.mark.torch,
    pytest.mark.root,
    pytest.mark.skipif(
        not may_make_them() and not os.environ.get("CI"), reason="mount namespaces need root"
    ),
]

TRAINING = Path(__file__).parent / "training.py"

SMALL = 64 * 2**20

WITHOUT_TRACING = Surroundings(lacks=("sys_ptrace",), refuses_ptrace=True)
HARDENED = Surroundings(
    is_root=False,
    has_read_only_root=True,
    lacks=("syslog", "sys_ptrace"),
    refuses_ptrace=True,
    shm_bytes=SMALL,
)

LOST = {
    "another user": (Surroundings(is_root=False), {"kernel log": "CAP_SYSLOG"}),
    "read-only root": (Surroundings(has_read_only_root=True), {"state": "are lost with it"}),
    "no CAP_SYSLOG": (Surroundings(lacks=("syslog",)), {"kernel log": "CAP_SYSLOG"}),
    "no ptrace": (WITHOUT_TRACING, {"ptrace": "seccomp"}),
    "small shared memory": (Surroundings(shm_bytes=SMALL), {"shared memory": "has 64 MiB in all"}),
    "all of it": (
        HARDENED,
        {
            "kernel log": "CAP_SYSLOG",
            "state": "are lost with it",
            "ptrace": "seccomp",
            "shared memory": "has 64 MiB in all",
        },
    ),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """May be written by everybody, even where nothing else may."""
    made = Path(tempfile.mkdtemp(prefix="hf-restricted-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def environment(around: Surroundings, folder: Path) -> dict[str, str]:
    """Without a home directory, and with no Holdfast from outside. Root's home, where that may be
    written, is left alone."""
    outside = ("HOLDFAST_", "PET_", "SLURM_", "XDG_", "HOME", "USER", "LOGNAME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    kept |= {"TMPDIR": str(folder), "OUT": str(folder), "OMP_NUM_THREADS": "1"}
    has_home = around.is_root and not around.has_read_only_root
    state = {"HOLDFAST_SET_PATHS_STATE_DIR": str(folder / "holdfast-state")}
    return kept | (state if has_home else {})


def holdfast(
    around: Surroundings, folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", *arguments]
    return subprocess.run(
        around.command(folder, command),
        env=environment(around, folder),
        capture_output=True,
        text=True,
        timeout=120,
    )


def needs(around: Surroundings) -> None:
    if around.refuses_ptrace and platform.machine() != "x86_64":
        pytest.skip("the refusal of system calls is written for x86-64")


@pytest.mark.parametrize("name", LOST)
def test_doctor_tells_what_is_lost_there_and_nothing_fails(name: str, folder: Path) -> None:
    around, lost = LOST[name]
    needs(around)
    ran = holdfast(around, folder, "doctor", "--ranks", "2", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    checks = {check["what"]: check for check in json.loads(ran.stdout)}
    for what, line in lost.items():
        assert checks[what]["verdict"] in ("note", "warn"), checks[what]
        assert line in checks[what]["line"]
    for what in {what for _, losses in LOST.values() for what in losses} - set(lost) - {"state"}:
        assert "lost" not in checks[what]["line"], checks[what]


@pytest.mark.parametrize("name", [name for name in LOST if name != "all of it"])
def test_a_job_runs_to_its_end_there(name: str, folder: Path) -> None:
    around, lost = LOST[name]
    needs(around)
    # One rank: what it lacks a second one lacks as well, and imports torch once more.
    ran = holdfast(around, folder, "run", "--nproc-per-node=1", str(TRAINING))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [path.name for path in folder.glob("*-from-*")] == ["0-0-from-0"]
    assert failing_probes(folder) == {"kernel_log"} & {what.replace(" ", "_") for what in lost}


def test_where_all_of_it_is_missing_a_crash_costs_no_completed_step(folder: Path) -> None:
    needs(HARDENED)
    options = ["--nproc-per-node=2", "--set=snapshot.every_steps=1"]
    ran = holdfast(HARDENED, folder, "run", *options, str(TRAINING), "crash")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "has 64 MiB in all" in ran.stderr + ran.stdout
    assert "are lost with it" in ran.stderr + ran.stdout
    assert sorted(path.name for path in folder.glob("*-from-*")) == ["1-0-from-30", "1-1-from-30"]
    assert list(folder.glob("holdfast-*/*/*/incidents/*/incident.json"))
    assert failing_probes(folder) == {"kernel_log"}


def failing_probes(folder: Path) -> set[str]:
    """What the sidecar could not read, by its log; nothing else went wrong."""
    (log,) = folder.glob("holdfast-*/*/*/sidecar.log")
    text = log.read_text()
    assert "Traceback" not in text
    return set(re.findall(r"probe (\w+) fails: ", text))
