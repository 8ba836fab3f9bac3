"""The run that nothing disturbs: its weights are what the other run must reach."""

from __future__ import annotations

import re
import subprocess
import time

from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.screen import Progress, Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.demo.workspace import Workspace

LIMIT_S = 180.0
LOOK_EVERY_S = 0.2

STEP = re.compile(r"^step (\d+) ", re.MULTILINE)


def run_undisturbed(workspace: Workspace, steps: int, screen: Screen) -> str:
    """Run it to its end; answer the SHA-256 of its final weights."""
    log = workspace.log(programs.UNDISTURBED)
    with log.open("wb") as output:
        process = subprocess.Popen(
            programs.undisturbed_run(workspace, steps),
            env=programs.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            screen.show(Progress("undisturbed", newest_step(log.read_text("utf-8")), steps))
            time.sleep(LOOK_EVERY_S)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    digest = workspace.weights_hash(programs.UNDISTURBED)
    if not digest:
        raise DemonstrationStopped(
            f"the undisturbed run failed (exit code {process.returncode})", log
        )
    return digest


def newest_step(log: str) -> int:
    """The last step that the script printed."""
    steps = STEP.findall(log)
    return int(steps[-1]) if steps else 0
