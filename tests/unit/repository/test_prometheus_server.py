"""The Prometheus of the tests goes when its test is over."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.prometheus_server import end

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "


def test_one_that_does_not_go_when_it_is_asked_to_is_killed() -> None:
    command = [sys.executable, "-c", DEAF + "signal.pause()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        end(child, patience_s=0.1)
    assert child.returncode == -signal.SIGKILL
