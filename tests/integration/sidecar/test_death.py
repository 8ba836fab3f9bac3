"""A rank's death, from the mutex to the plan, without a launcher's word; and what killed it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.sidecar.node import Node, wait_for
from tests.integration.sidecar.test_hang import start_attempt

from holdfast_sidecar.linux.cgroups import parse_mounts
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Section

LIMIT_BYTES = 96 << 20


def incident_of(node: Node, identifier: str) -> Incident:
    text = node.server.store(node.job).read().section(Section.INCIDENTS)[identifier]
    incident = decode(Incident, text)
    assert incident is not None
    return incident


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_attempt_ends_on_the_sidecars_word_alone(node: Node, number: signal.Signals) -> None:
    """The launcher of this test never says that a rank failed."""
    _, victim = start_attempt(node)
    victim.send_signal(number)
    plan = wait_for(lambda: (p := node.plan()) and p.state == "ended" and p)
    assert (plan.cause, plan.culprit_node, plan.culprit_ranks) == ("crash", "a", [1])
    incident = wait_for(lambda: incident_of(node, plan.incident))
    assert f"was ended by {number.name}" in incident.evidence[0]
    assert incident.confidence > 0.9
    wait_for(lambda: "heard: attempt 0 is ended: crash, ranks [1] on node a" in node.log())


@pytest.mark.parametrize(
    ("number", "code", "signature"),
    [
        (signal.SIGUSR2, 3, "exited with code 3 at step"),
        (signal.SIGHUP, 1, "ValueError: planted at step"),
    ],
    ids=["sys.exit(3)", "an exception"],
)
def test_so_it_does_when_the_script_ends_itself(
    node: Node, number: signal.Signals, code: int, signature: str
) -> None:
    _, victim = start_attempt(node)
    victim.send_signal(number)
    plan = wait_for(lambda: (p := node.plan()) and p.state == "ended" and p)
    incident = wait_for(lambda: incident_of(node, plan.incident))
    assert incident.culprit_ranks == [1]
    assert f"exited with code {code}" in incident.evidence[0]
    assert incident.signature.startswith(signature)


def test_who_aborts_may_be_a_victim_so_its_launcher_is_waited_for(node: Node) -> None:
    """torch aborts a rank that has lost its peers."""
    _, victim = start_attempt(node)
    victim.send_signal(signal.SIGABRT)
    (finding,) = wait_for(lambda: node.findings("crash"))
    assert "was ended by SIGABRT" in finding.evidence[0]
    plan = node.plan()
    assert plan is not None
    assert plan.state == "running"
    node.agent(node.children[0], "failed", plan.attempt)
    plan = wait_for(lambda: (p := node.plan()) and p.state == "ended" and p)
    assert (plan.cause, plan.culprit_ranks) == ("crash", [1])


def test_a_rank_that_is_ended_as_launchers_do_it_ends_no_attempt(node: Node) -> None:
    _, victim = start_attempt(node)
    victim.send_signal(signal.SIGTERM)
    (finding,) = wait_for(lambda: node.findings("crash"))
    assert not finding.acts
    plan = node.plan()
    assert plan is not None
    assert plan.state == "running"


def test_the_sidecar_leaves_no_child_behind(node: Node) -> None:
    node.rank()
    sidecar = node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks)
    found = wait_for(lambda: children(sidecar.pid))
    sidecar.kill()
    sidecar.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in found))


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    threads = Path(f"/proc/{pid}/task").iterdir()
    found = text.split() or [c for t in threads for c in (t / "children").read_text().split()]
    return [int(child) for child in found]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup (v1) of its own below ours; what is in it in the end is killed."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    paths = [line.split(":", 2)[2] for line in own if "memory" in line.split(":", 2)[1].split(",")]
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    places = [m.place(paths[0]) for m in mounts if "memory" in m.options] if paths else []
    if not places:
        pytest.skip("no memory cgroup of version 1")
    made = places[0] / f"holdfast-test-{os.getpid()}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield made
    for pid in (made / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: not (made / "cgroup.procs").read_text().strip())
    made.rmdir()


def rank_in(node: Node, cgroup: Path) -> subprocess.Popen[bytes]:
    rank = node.rank()
    (cgroup / "cgroup.procs").write_text(str(rank.pid))
    node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].step > 10)
    return rank


@pytest.mark.root
def test_the_oom_killer_is_told_from_kill_9_in_a_real_cgroup(node: Node, cgroup: Path) -> None:
    rank = rank_in(node, cgroup)
    rank.send_signal(signal.SIGUSR1)
    (finding,) = wait_for(lambda: node.findings("crash"), 30)
    assert rank.wait(10) == -signal.SIGKILL
    assert "was killed by the kernel's OOM killer" in finding.evidence[0]
    assert finding.acts


@pytest.mark.root
def test_kill_9_in_such_a_cgroup_is_no_oom_kill(node: Node, cgroup: Path) -> None:
    rank = rank_in(node, cgroup)
    rank.kill()
    (finding,) = wait_for(lambda: node.findings("crash"))
    assert "was ended by SIGKILL" in finding.evidence[0]
    assert "OOM" not in finding.evidence[0]
