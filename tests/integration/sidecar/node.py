"""One node for tests: pretend ranks, a sidecar process, and what may be asked of both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import Server

from holdfast_sidecar.config.paths import Paths, places
from holdfast_sidecar.config.settings import PathSettings
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport
from holdfast_sidecar.store.protocol import Section

PRETEND_RANK = Path(__file__).with_name("pretend_rank.py")


def wait_for(what: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """Ask again and again until the answer is true; the answer."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if answer := what():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"did not come true within {timeout_s} s")


@dataclass
class Node:
    """A node of a job in directories of its own. Everything that was started ends in `close`."""

    directory: Path
    server: Server
    job: str = "job"
    name: str = "a"
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def paths(self) -> PathSettings:
        return PathSettings(
            shm_dir=str(self.directory / "shm"), state_dir=str(self.directory / "state")
        )

    @property
    def places(self) -> Paths:
        return places(self.paths, self.job, self.name)

    def rank(
        self, *arguments: str, attempt: int = 0, output: Path | None = None
    ) -> subprocess.Popen[bytes]:
        self.places.shm.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.places.shm.chmod(0o700)
        command = [
            sys.executable,
            str(PRETEND_RANK),
            f"--page-dir={self.places.shm}",
            f"--evidence-dir={self.places.evidence(attempt)}",
            f"--attempt={attempt}",
            f"--node={self.name}",
            f"--job={self.job}",
            *arguments,
        ]
        if output is None:
            return self._start(command)
        with output.open("ab") as file:
            return self._start(command, stdout=file, stderr=file)

    def sidecar(self, *arguments: str) -> subprocess.Popen[bytes]:
        self.places.state.mkdir(parents=True, exist_ok=True)
        with self.places.sidecar_log.open("ab") as log:
            return self._start(
                [
                    *(sys.executable, "-m", "holdfast_sidecar.cli.main", "sidecar"),
                    *("--job", self.job, "--node", self.name),
                    *("--redis", self.server.settings.url),
                    *("--set", f"paths.shm_dir={self.paths.shm_dir}"),
                    *("--set", f"paths.state_dir={self.paths.state_dir}"),
                    *arguments,
                ],
                stdout=log,
                stderr=log,
            )

    def launcher(self) -> subprocess.Popen[bytes]:
        """Something to be watched as a launcher."""
        return self._start([sys.executable, "-c", "import time; time.sleep(600)"])

    def agent(self, launcher: subprocess.Popen[bytes], state: str, attempt: int = -1) -> None:
        """Speak for the launcher: this node alone is the job."""
        report = AgentReport(
            node=self.name,
            incarnation="x",
            state=state,
            attempt=attempt,
            beat=time.monotonic_ns(),
            slots=2,
            address="127.0.0.1",
            min_nodes=1,
            max_nodes=1,
            pid=launcher.pid,
        )
        self.server.store(self.job).report(Section.AGENTS, self.name, encode(report))

    def report(self) -> NodeReport | None:
        text = self.server.store(self.job).read().section(Section.NODES).get(self.name)
        return None if text is None else decode(NodeReport, text)

    def plan(self) -> Plan | None:
        text = self.server.store(self.job).read().section(Section.PLAN).get("current")
        return None if text is None else decode(Plan, text)

    def incidents(self) -> list[Incident]:
        found = self.server.store(self.job).read().section(Section.INCIDENTS).values()
        return [incident for text in found if (incident := decode(Incident, text)) is not None]

    def findings(self, kind: str) -> list[Any]:
        report = self.report()
        return [] if report is None else [f for f in report.findings if f.kind.value == kind]

    def ask(self, path: str) -> str:
        address = json.loads(self.places.sidecar_record.read_text())["metrics_address"]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def log(self) -> str:
        return self.places.sidecar_log.read_text()

    def close(self) -> None:
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.wait()

    def _start(self, command: list[str], **extra: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command, start_new_session=True, env={**os.environ, **self.server.environment}, **extra
        )
        self.children.append(child)
        return child
