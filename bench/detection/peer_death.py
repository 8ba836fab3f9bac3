"""Row `death` under the peers: from SIGKILL until their launcher prints its first line about it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.launch.contestants import FIRST_NODE, Contestant, Scenario
from bench.launch.job import Job
from bench.launch.processes import kill

PROGRAM = Path(__file__).parent / "programs" / "resident.py"
START_LIMIT_S = 90.0
TOLD_LIMIT_S = 60.0
REST_S = 1.0
LOOK_S = 0.02


@dataclass(frozen=True)
class Resident(Scenario):
    """One rank that holds memory and does nothing."""

    mebibytes: int = 0

    @property
    def pid_file(self) -> Path:
        """Where it says who it is."""
        return self.directory / "pid"

    def training(self) -> list[str]:
        """The program and its arguments."""
        return [str(PROGRAM), str(self.pid_file), str(self.mebibytes)]


def measure_peer(peer: Contestant, mebibytes: int, number: int) -> list[Sample]:
    """One death; what is printed afterwards is about it, for the rank itself prints nothing."""
    scenario = Resident("", Path(), "sgd", min_nodes=1, max_nodes=1, mebibytes=mebibytes)
    sample: Sample = {"contestant": peer.name, "round": number, "resident_mib": mebibytes}
    with Job(peer, scenario) as job:
        job.start(FIRST_NODE)
        assert isinstance(job.scenario, Resident)
        pid = _await_pid(job.scenario.pid_file)
        time.sleep(REST_S)
        struck_ns = time.monotonic_ns()
        kill(pid)
        told_ns = _await_line(job, struck_ns)
    if told_ns is not None:
        sample["told_s"] = (told_ns - struck_ns) / 1e9
    return [sample]


def _await_pid(file: Path) -> int:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if file.exists():
            return int(file.read_text())
        time.sleep(LOOK_S)
    raise NotRun(f"the rank did not come up within {START_LIMIT_S:g} s")


def _await_line(job: Job, after_ns: int) -> int | None:
    deadline = time.monotonic() + TOLD_LIMIT_S
    while time.monotonic() < deadline:
        found = job.launched[FIRST_NODE].first_line_after(after_ns)
        if found is not None:
            return found
        time.sleep(LOOK_S)
    return None
