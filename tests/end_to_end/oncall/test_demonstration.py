"""`testing.demo_alerting` shows what it promises, and leaves nothing behind.

Mostly in make soak: `--brisk` takes two minutes. How it judges and what it prints, the unit tests
show.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from tests.servers import required

pytestmark = [pytest.mark.torch, pytest.mark.prometheus]

COMMAND = [sys.executable, "-m", "testing.demo_alerting"]
LIMIT_S = 600.0


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """A temporary directory of its own, by which its processes are known."""
    (tmp_path / "tmp").mkdir()
    return os.environ | {"TMPDIR": str(tmp_path / "tmp")}


def left_running(tmp_path: Path) -> list[list[str]]:
    """Processes whose files lie in this test's directory."""
    return [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or [])
    ]


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S + 60)
def test_one_page_with_node_and_cause_is_shown_and_resolves(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    required("prometheus")
    required("prometheus-alertmanager")
    played = subprocess.run(
        [*COMMAND, "--brisk", "--json"],
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"
    verdict = json.loads(played.stdout)
    assert verdict["ok"], verdict["problems"]
    assert (verdict["page"]["name"], verdict["page"]["node"]) == ("HoldfastNodeLost", "b")
    assert verdict["cause"] == "node_lost"
    assert 0 < verdict["paged_s"] < verdict["resolved_s"]
    assert left_running(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S + 60)
def test_kept_it_answers_until_ctrl_c(tmp_path: Path, surroundings: dict[str, str]) -> None:
    required("prometheus")
    required("prometheus-alertmanager")
    kept, said = tmp_path / "kept", tmp_path / "said"
    with said.open("w") as output:
        playing = subprocess.Popen(
            [*COMMAND, "--brisk", "--json", f"--keep={kept}"],
            env=surroundings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
    try:
        until_s = time.monotonic() + LIMIT_S
        while not said.read_text().endswith("}\n"):
            assert playing.poll() is None, said.read_text()
            assert time.monotonic() < until_s
            time.sleep(0.5)
        verdict = json.loads(said.read_text())
        for url in (*verdict["addresses"].values(), verdict["page"]["runbook"]):
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200, url
        playing.send_signal(signal.SIGINT)
        assert playing.wait(60) == 0
    finally:
        playing.kill()
        playing.wait()
    assert left_running(tmp_path) == []
    assert (kept / "alerting" / "alertmanager.yml").exists()


def test_what_is_missing_is_told_in_a_line_each(tmp_path: Path) -> None:
    answer = subprocess.run(
        COMMAND,
        env=os.environ | {"PATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2
    first, second = answer.stderr.splitlines()
    assert "prometheus" in first
    assert "prometheus-alertmanager" in second
    assert answer.stdout == ""
