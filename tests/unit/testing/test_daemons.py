"""A program is ready when it says so; one that does not get so far is told with its own words."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from testing import alerting
from testing.alerting import PORT_ATTEMPTS, alertmanager_command, fetch, prometheus_command, start

from holdfast_sidecar.cli.demonstration.job import DemonstrationStopped

READY_AT_ONCE = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/-/ready" else 404)
        self.end_headers()
host, port = sys.argv[1].split(":")
HTTPServer((host, int(port)), Handler).serve_forever()
"""


def test_it_runs_until_it_is_ended(tmp_path: Path) -> None:
    daemon = start("It", lambda at: [sys.executable, "-c", READY_AT_ONCE, at], tmp_path / "it.log")
    try:
        assert fetch(f"{daemon.url}/-/ready") == b""
        assert not daemon.has_ended()
    finally:
        daemon.end()
    assert daemon.has_ended()
    daemon.end()  # twice is once


def test_one_that_ends_is_tried_on_other_ports_and_then_told(tmp_path: Path) -> None:
    seen: list[str] = []

    def command_at(address: str) -> list[str]:
        seen.append(address)
        return [sys.executable, "-c", "import sys; sys.exit('address in use')"]

    with pytest.raises(DemonstrationStopped, match="It does not start") as stopped:
        start("It", command_at, tmp_path / "it.log")
    assert stopped.value.tail == ["address in use"] * PORT_ATTEMPTS
    assert len(seen) == PORT_ATTEMPTS


def test_one_that_is_never_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "READY_S", 0.2)
    monkeypatch.setattr(alerting, "PORT_ATTEMPTS", 1)
    with pytest.raises(DemonstrationStopped):
        start("It", lambda at: ["sleep", "60"], tmp_path / "it.log")


def test_one_that_does_not_go_when_it_is_asked_to_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "END_WITHIN_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY_AT_ONCE
    daemon = start("It", lambda at: [sys.executable, "-c", deaf, at], tmp_path / "it.log")
    daemon.end()
    assert daemon.process.returncode == -signal.SIGKILL


def test_both_listen_on_loopback_and_look_for_no_others(tmp_path: Path) -> None:
    at = "127.0.0.1:1"
    prometheus = prometheus_command("/x/it", tmp_path, 12.0, at)
    alertmanager = alertmanager_command("/x/it", tmp_path, at)
    for command in (prometheus, alertmanager):
        assert f"--web.listen-address={at}" in command
    assert "--cluster.listen-address=" in alertmanager
    assert "--rules.alert.resend-delay=12000ms" in prometheus
