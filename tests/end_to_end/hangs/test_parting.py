"""Over two nodes: what the ranks of one told the other is what names the culprit."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.launcher import Launcher, surroundings

from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.protocol import CURRENT, Section

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

PROGRAM = Path(__file__).with_name("programs") / "parting.py"


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


def test_a_rank_that_parts_from_the_others_is_named_from_afar_and_stops_the_job_the_second_time(
    folder: Path, server: servers.Server
) -> None:
    pytest.importorskip("torch")
    nodes = [start(node, folder, server) for node in ("a", "b")]
    try:
        codes = [node.wait(150.0) for node in nodes]
        logs = "\n".join(log.read_text() for log in folder.glob("state/*/*/sidecar.log"))
    finally:
        for node in nodes:
            for process in node.processes():
                process.kill()
    view = server.store("parting").read()
    plan = decode(Plan, view.section(Section.PLAN)[CURRENT])
    assert plan is not None
    assert codes == [EXIT_DO_NOT_REQUEUE, EXIT_DO_NOT_REQUEUE], nodes[0].output + logs
    assert "the same failure 2 times: rank 3 entered barrier where others" in plan.message
    incidents = [decode(Incident, text) for text in view.section(Section.INCIDENTS).values()]
    assert len(incidents) == 2
    for incident in incidents:
        assert incident is not None
        assert (incident.cause, incident.culprit_node) == ("hang", "b"), incident
        assert (incident.culprit_ranks, incident.confidence) == ([3], 0.95), incident
        assert sorted(incident.kept_by) == ["a", "b"], incident
        reason = "where ranks 0-2 entered all_reduce of Float x 3"
        assert any(reason in line for line in incident.evidence), incident
    acted_on = [line for line in logs.splitlines() if "found hang of ranks" in line]
    assert acted_on
    assert all("found hang of ranks [3]" in line for line in acted_on), acted_on


def start(node: str, folder: Path, server: servers.Server) -> Launcher:
    command = [
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
        *("--job=parting", f"--node={node}", f"--redis={server.settings.url}"),
        *("--nnodes=2", "--nproc-per-node=2", "--set=sidecar.grace_s=2.5"),
        str(PROGRAM),
    ]
    environment = surroundings(folder) | {"PYTHONPATH": str(PROGRAM.parents[2])}
    return Launcher.start(node, command, folder, environment)
