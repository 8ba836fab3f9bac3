"""Two sidecars under one node's name, with real processes and a real server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.sidecar.node import Node, wait_for
from tests.servers import Server


@pytest.fixture
def other(tmp_path: Path, server: Server) -> Iterator[Node]:
    """The same node of the same job, in directories of its own, as on another machine."""
    made = Node(tmp_path / "other", server)
    yield made
    made.close()


def epoch(node: Node) -> int:
    return node.server.store(node.job).read().lease.epoch


def incarnation(node: Node) -> str:
    report = node.report()
    return "" if report is None else report.incarnation


def test_the_second_is_refused_in_a_line_and_the_first_leads_on(node: Node, other: Node) -> None:
    first = node.sidecar()
    wait_for(node.report)
    held, who = epoch(node), incarnation(node)
    began_s = time.monotonic()
    second = other.sidecar()
    wait_for(lambda: "waiting up to 5 s" in other.log(), 5)
    assert second.wait(15) == 2
    assert time.monotonic() - began_s < 10
    last = other.log().splitlines()[-1]
    assert "another sidecar watches node 'a' of job 'job', on this machine" in last
    assert f"pid {first.pid}:" in last
    assert "--node" in last
    assert first.poll() is None
    assert (epoch(node), incarnation(node)) == (held, who)


def test_two_that_found_no_server_do_not_fight_once_it_is_back(node: Node, other: Node) -> None:
    first = node.sidecar()
    wait_for(node.report)
    held, who = epoch(node), incarnation(node)
    node.server.kill()
    second = other.sidecar()
    wait_for(lambda: other.places.sidecar_record.exists())
    time.sleep(1)
    node.server.start()
    wait_for(node.report)
    assert second.wait(20) == 2
    assert "another sidecar watches node 'a'" in other.log().splitlines()[-1]
    assert first.poll() is None
    assert incarnation(node) == who
    assert epoch(node) <= held + 3
    assert len(other.log().splitlines()) < 30


def test_after_a_crash_the_next_one_speaks_without_waiting_for_the_dead(node: Node) -> None:
    first = node.sidecar()
    wait_for(node.report)
    wait_for((node.places.state / "sidecar.lock").read_text)
    first.kill()
    first.wait()
    before = incarnation(node)
    node.sidecar()
    wait_for(lambda: incarnation(node) != before)
    assert "standing back" not in node.log()
    assert "another sidecar watches" not in node.log()


def test_one_that_was_frozen_for_long_leaves_to_the_one_in_its_place(
    node: Node, other: Node
) -> None:
    first = node.sidecar()
    wait_for(node.report)
    os.kill(first.pid, signal.SIGSTOP)
    before = incarnation(node)
    second = other.sidecar()
    wait_for(lambda: incarnation(node) != before)
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(20) == 2
    assert f"pid {second.pid}:" in node.log().splitlines()[-1]
    assert second.poll() is None


def test_one_that_outlives_its_launcher_gives_way_to_the_next_launchers(
    node: Node, other: Node
) -> None:
    launcher, next_launcher = node.launcher(), other.launcher()
    node.sidecar("--launcher-pid", str(launcher.pid), "--set", "sidecar.grace_s=8")
    wait_for(node.report)
    before = incarnation(node)
    launcher.kill()
    launcher.wait()
    wait_for(lambda: (r := node.report()) and not r.launcher_alive)
    second = other.sidecar("--launcher-pid", str(next_launcher.pid))
    wait_for(lambda: incarnation(node) != before, 6)
    time.sleep(1)
    assert second.poll() is None
    assert "another sidecar watches" not in other.log()
