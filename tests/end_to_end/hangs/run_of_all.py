"""One job that hangs in every way, attempt after attempt, and what was said and done about each."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.launcher import Launcher, surroundings
from tests.servers import Server

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section

PROGRAMS = Path(__file__).with_name("programs")

RANKS = 3
CULPRIT = 1

HANG_LIMIT_S = 60.0
"""For an attempt to start and reach its hang on a machine on which everything else runs as well."""

TOLD = frozenset({Kind.HANG, Kind.STALL, Kind.DATA_STALL})

PATIENT_S = 2.0
"""A kind that is only silent must be left alone; for so long it is watched whether it is."""


@dataclass
class Told:
    """What became of one hang. Seconds after it began; None: never, within `limit_s`."""

    kind: str
    culprit_pid: int
    declared_s: float | None = None
    acted_s: float | None = None
    findings: list[Finding] = field(default_factory=list)
    """The newest that stood before the attempt ended."""
    incident: Incident | None = None
    has_evidence: bool = False
    """Evidence was on disk by the time that the attempt was seen to be ended."""

    @property
    def surest(self) -> Finding:
        """The finding that names the culprit, when nobody decided more."""
        return max(self.findings, key=lambda finding: finding.confidence)


@dataclass
class RunOfAll:
    """The job, and its hangs so far."""

    server: Server
    folder: Path
    launcher: Launcher
    began_ns: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return "hangs"

    def follow(self, attempt: int, kind: str, acts: bool, limit_s: float) -> Told:
        """Wait for this attempt's hang, and for what is told and done about it."""
        began_ns, pid = self._await_hang(attempt)
        told = Told(kind, pid)
        until_s = began_ns / 1e9 + limit_s
        while time.monotonic() < until_s:
            self._look(told, attempt, began_ns)
            if told.incident is not None and told.incident.ended_unix_s:
                break
            patience_s = told.declared_s is not None and time.monotonic() - began_ns / 1e9
            if not acts and patience_s and patience_s > (told.declared_s or 0.0) + PATIENT_S:
                break
            time.sleep(0.02)
        if told.acted_s is None:
            os.kill(pid, signal.SIGKILL)
        return told

    def conclude(self, attempt: int, told: Told) -> None:
        """What the job's records say in the end of one that was only silent, and was killed."""
        for text in self.server.store(self.job).read().section(Section.INCIDENTS).values():
            incident = decode(Incident, text)
            if incident is not None and incident.attempt == attempt:
                told.incident = incident

    def _look(self, told: Told, attempt: int, began_ns: int) -> None:
        view = self.server.store(self.job).read()
        age_s = (time.monotonic_ns() - began_ns) / 1e9
        report = decode(NodeReport, view.section(Section.NODES).get("a", ""))
        if report is not None and report.attempt == attempt:
            found = [finding for finding in report.findings if finding.kind in TOLD]
            if found:
                told.findings = found
                told.declared_s = told.declared_s or age_s
        for text in view.section(Section.INCIDENTS).values():
            incident = decode(Incident, text)
            if incident is not None and incident.attempt == attempt:
                told.incident = incident
                if incident.ended_unix_s:
                    told.acted_s = told.acted_s or age_s
                    kept = f"state/{self.job}/a/incidents/{incident.identifier}/kept.json"
                    told.has_evidence = (self.folder / kept).exists()

    def _await_hang(self, attempt: int) -> tuple[int, int]:
        until_s = time.monotonic() + HANG_LIMIT_S
        while time.monotonic() < until_s:
            for log in self.folder.glob("out/rank-*.log"):
                for line in log.read_text().splitlines():
                    at_ns, event, _, _, pid, number, _ = line.split()
                    if event == "hang" and int(number) == attempt:
                        return int(at_ns), int(pid)
            assert self.launcher.process.poll() is None, self.launcher.output
            time.sleep(0.02)
        raise AssertionError(f"attempt {attempt} never hung:\n{self.launcher.output}")

    def close(self) -> None:
        """End whatever is left, and remove the files."""
        for process in self.launcher.processes():
            process.kill()
        self.launcher.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(server: Server, kinds: Sequence[str]) -> RunOfAll:
    """Start the job."""
    folder = Path(tempfile.mkdtemp(prefix="hf-hangs-", dir="/tmp"))
    for part in ("out", "shm", "state"):
        (folder / part).mkdir()
    command = [
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
        *("--job=hangs", "--node=a", f"--redis={server.settings.url}"),
        f"--nproc-per-node={RANKS}",
        *("--set=policy.backoff_s=0.1", "--set=policy.backoff_limit_s=0.1"),
        *("--set=policy.budget=1000", "--set=sidecar.grace_s=2.5"),
        "--set=policy.same_signature_limit=1000",  # a program that repeats its bug is stopped
        str(PROGRAMS / "training.py"),
        *(f"--directory={folder / 'out'}", f"--kinds={','.join(kinds)}", f"--rank={CULPRIT}"),
        *("--step=12", "--step-s=0.05"),
    ]
    environment = surroundings(folder) | {"PYTHONPATH": str(PROGRAMS.parents[1])}
    return RunOfAll(server, folder, Launcher.start("a", command, folder, environment))
