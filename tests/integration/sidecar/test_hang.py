"""A hang from the first finding to the end of the culprit, led by the real leader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.integration.sidecar.node import Node, wait_for


def start_attempt(node: Node, *options: str) -> list[subprocess.Popen[bytes]]:
    """A sidecar that leads, a plan that runs, and two ranks that have stepped."""
    launcher = node.launcher()
    node.sidecar("--launcher-pid", str(launcher.pid), *options)
    node.agent(launcher, "joining")
    plan = wait_for(lambda: (p := node.plan()) and p.state == "running" and p)
    node.agent(launcher, "running", plan.attempt)
    both = [
        node.rank(f"--rank={rank}", "--world-size=2", f"--epoch={plan.epoch}") for rank in (0, 1)
    ]
    wait_for(lambda: (r := node.report()) and [x.step > 10 for x in r.ranks] == [True, True])
    return both


def test_evidence_is_kept_before_the_culprit_is_ended_and_nobody_else_is(node: Node) -> None:
    innocent, culprit = start_attempt(node)
    os.kill(culprit.pid, signal.SIGSTOP)
    stopped_s = time.monotonic()
    assert culprit.wait(10) == -signal.SIGKILL
    took_s = time.monotonic() - stopped_s
    plan = node.plan()
    assert plan is not None
    assert (plan.state, plan.cause, plan.culprit_ranks) == ("ended", "hang", [1])
    kept = node.places.incident(plan.incident)
    index = json.loads((kept / "kept.json").read_text())
    assert index["stacks_answered"] == ["stack-local-0.txt"]
    assert index["seconds"] < 1.0
    assert "pretend_rank.py" in (kept / "stack-local-0.txt").read_text()
    if may_look_into_others():
        assert index["spied"] == [1]
        assert "pretend_rank.py" in (kept / "rank-1-stacks.txt").read_text()
        assert index["places"]["1"].startswith("stopped in main (pretend_rank.py:")
    facts = json.loads((kept / "rank-1.json").read_text())
    assert "T (stopped)" in facts["process"]["status"]
    assert facts["records"][-1]["step"] > 10
    assert innocent.poll() is None
    assert took_s < 4.0


def may_look_into_others() -> bool:
    """Whether the kernel lets py-spy look at processes that it did not start."""
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() == "0"
    except FileNotFoundError:
        return True


def test_who_observes_ends_nobody_and_tells_that_it_was_over_by_itself(node: Node) -> None:
    _, culprit = start_attempt(node, "--mode", "observe")
    os.kill(culprit.pid, signal.SIGSTOP)
    wait_for(lambda: node.findings("hang"))
    time.sleep(1.5)
    assert culprit.poll() is None
    plan = node.plan()
    assert plan is not None
    assert plan.state == "running"
    (incident,) = wait_for(node.incidents)
    assert (incident.decided, incident.culprit_ranks) == ("observe", [1])
    assert incident.evidence[-1] == "would have restarted the job, but the mode is observe"
    os.kill(culprit.pid, signal.SIGCONT)
    wait_for(lambda: node.incidents()[0].recovered_unix_s)
    (incident,) = node.incidents()
    assert incident.recovered_unix_s - incident.detected_unix_s > 1.0


def test_while_redis_is_away_a_hang_is_found_and_nobody_is_ended(node: Node) -> None:
    _, culprit = start_attempt(node)
    assert node.server.process is not None
    node.server.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: 'holdfast_store_up{node="a",run="job"} 0.0' in node.ask("/metrics"))
        os.kill(culprit.pid, signal.SIGSTOP)
        wait_for(lambda: "hang" in json.loads(node.ask("/healthz"))["findings"])
        time.sleep(1.0)
        assert culprit.poll() is None
    finally:
        node.server.process.send_signal(signal.SIGCONT)
    assert culprit.wait(15) == -signal.SIGKILL


def test_silence_alone_ends_nobody(node: Node) -> None:
    launcher = node.launcher()
    node.sidecar("--launcher-pid", str(launcher.pid))
    node.agent(launcher, "joining")
    plan = wait_for(lambda: (p := node.plan()) and p.state == "running" and p)
    node.agent(launcher, "running", plan.attempt)
    silent = node.rank("--stick-at=20", f"--epoch={plan.epoch}")
    (finding,) = wait_for(lambda: node.findings("stall"))
    assert not finding.acts
    time.sleep(1.0)
    assert silent.poll() is None
