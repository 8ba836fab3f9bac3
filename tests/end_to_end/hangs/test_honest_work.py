"""A job whose rank is at work for long is left alone, and the same job's real faults are not."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.launcher import Launcher, surroundings

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Section

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).with_name("programs")

WORKS_S = float(os.environ.get("HONEST_WORK_S", "6"))
"""Of each kind of work, far beyond what is taken for silence and what a proof takes. What silence
itself would take for an end is tried by more: 130 was enough to be ended by it once."""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    for part in ("out", "shm", "state"):
        (made / part).mkdir()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def server(folder: Path) -> Iterator[servers.Server]:
    started = servers.plain_on_socket(folder).start()
    yield started
    started.kill()


def run(folder: Path, server: servers.Server, *options: str, limit_s: float) -> list[Incident]:
    """Run the job to its good end; its incidents, in their order."""
    pytest.importorskip("torch")
    command = [
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
        *("--job=honest", "--node=a", f"--redis={server.settings.url}", "--nproc-per-node=2"),
        *("--set=policy.backoff_s=0.1", "--set=policy.backoff_limit_s=0.1"),
        *("--set=sidecar.grace_s=2.5", str(PROGRAMS / "working.py"), *options),
    ]
    environment = surroundings(folder) | {"PYTHONPATH": str(PROGRAMS.parents[1])}
    launcher = Launcher.start("a", command, folder, environment)
    try:
        assert launcher.wait(limit_s) == 0, launcher.output
    finally:
        for process in launcher.processes():
            process.kill()
    texts = server.store("honest").read().section(Section.INCIDENTS).values()
    incidents = [one for text in texts if (one := decode(Incident, text)) is not None]
    return sorted(incidents, key=lambda one: one.attempt)


def test_work_between_two_steps_is_left_alone_and_a_stop_and_a_deadlock_are_recovered(
    folder: Path, server: servers.Server
) -> None:
    options = (f"--seconds={WORKS_S}", "--faults=stopped,deadlock")
    incidents = run(folder, server, *options, limit_s=120.0 + 10 * WORKS_S)
    told = [(one.attempt, one.cause, one.culprit_ranks) for one in incidents]
    assert told == [(0, "hang", [1]), (1, "hang", [1])], incidents
    assert all(one.recovered_unix_s for one in incidents), incidents
    done = [line.split()[:-1] for line in (folder / "out/rank-1.log").read_text().splitlines()]
    assert [line[0] for line in done if line[-1] == "0"] == [
        *("building", "compute", "compute_in_a_child", "receive", "upload_by_a_thread"),
        *("try_again_later", "roll_out", "stopped"),
    ]
    assert done[-1] == ["done", "2"]
    log = next(folder.glob("state/honest/a/sidecar.log")).read_text()
    assert "found stall of ranks [1]" in log, "what is silent is told"


def test_what_is_not_proven_is_ended_by_the_process_group_and_names_who_had_not_arrived(
    folder: Path, server: servers.Server
) -> None:
    options = ("--seconds=0.1", "--faults=endless-loop", "--group-timeout=8")
    (incident,) = run(folder, server, *options, limit_s=300.0)
    assert (incident.culprit_node, incident.culprit_ranks) == ("a", [1]), incident
    assert incident.cause == "stall", incident
    assert any("rank 1 in " in line for line in incident.evidence), incident
    assert any("Timed out waiting" in line for line in incident.evidence), incident
    assert incident.detected_unix_s - incident.since_unix_s > 6.0, incident
