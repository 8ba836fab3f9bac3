"""What would have been done and was not: on record, and over by itself or overtaken."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import ModeSettings, Settings, SidecarSettings
from holdfast_sidecar.export.status import judge
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.policy import modes
from holdfast_sidecar.policy.checkpoint_schedule import work_out
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.withheld import continued, record
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.memory_store import MemoryStore


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    return job


def test_one_mode_for_all_faults_or_one_for_each() -> None:
    settings = Settings(sidecar=SidecarSettings(mode="observe"), modes=ModeSettings(hang="act"))
    assert modes.mode_of_job(settings, "hang") == "act"
    assert modes.mode_of_job(settings, "stall") == "observe"
    assert modes.mode_of_job(settings, "a cause that is new to us") == "observe"
    node = NodeReport("a", "i", 1, 0, 0, 0, True, mode="act", modes={"numbers": "suggest"})
    assert modes.mode_on(node, "spike") == modes.mode_on(node, "nonfinite") == "suggest"
    assert modes.mode_on(node, "hang") == "act"


@pytest.mark.parametrize(
    "options",
    [{"mode": "observe"}, {"mode": "suggest"}, {"modes": ModeSettings(hang="observe")}],
    ids=["observe", "suggest", "observe hangs only"],
)
def test_a_hang_is_recorded_and_closed_when_it_is_over_by_itself(
    tmp_path: Path, options: dict[str, object]
) -> None:
    job = started(tmp_path, **options)
    job.nodes["n1"].frozen = {1}
    job.run(12)
    (incident,) = job.incidents()
    assert not tell(incident).is_over
    job.nodes["n1"].frozen = set()
    job.run(1)
    (incident,) = job.incidents()
    assert incident.decided in ("observe", "suggest")
    assert (incident.culprit_node, incident.culprit_ranks) == ("n1", [3])
    assert incident.recovered_unix_s - incident.detected_unix_s == pytest.approx(12, abs=0.5)
    story = tell(incident)
    assert story.is_over
    assert [chapter.what for chapter in story.chapters][-1] == "it was over by itself"
    assert job.is_running(0)


def test_where_it_went_on_is_said_by_the_ranks_of_the_attempt() -> None:
    """A node that was in an earlier attempt, and is a spare now, tells of its ranks of then."""

    def node(name: str, attempt: int, step: int) -> NodeReport:
        rank = RankReport(0, 0, 1, step, "forward", 0.0, 0.1, 0.1)
        return NodeReport(name, "i", 1, 0, 0, attempt, True, [rank])

    plan = Plan(4, 7, "running", [Member("a", "i", 0, 0, 1)], 1)
    hang = Incident("x", 4, "hang", "a", [0], decided="observe", step_reached=400)
    nodes = {"a": node("a", 4, 500), "b": node("b", 3, 900)}
    cluster = Cluster(nodes=nodes, plan=plan, incidents={"x": hang})
    (write,) = record(cluster, plan, DecisionContext(7, 100.0, 100.0, Settings()))
    over = decode(Incident, write.value or "")
    assert over is not None
    assert (over.recovered_unix_s, over.step_resumed) == (100.0, 500)


def test_a_fault_that_flickers_is_one_incident(tmp_path: Path) -> None:
    job = started(tmp_path, mode="observe")
    for _ in range(5):
        job.nodes["n1"].frozen = {0}
        job.run(2)
        job.nodes["n1"].frozen = set()
        job.run(2)
    assert len(job.incidents()) == 1
    job.run(90)
    job.nodes["n1"].frozen = {0}
    job.run(1)
    assert len(job.incidents()) == 2


def test_one_that_is_overtaken_by_a_crash_is_closed_with_its_attempt(tmp_path: Path) -> None:
    job = started(tmp_path, mode="observe")
    job.nodes["n1"].frozen = {0}
    job.run(2)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    hang, crash = sorted(job.incidents(), key=lambda i: i.detected_unix_s)
    assert (hang.cause, hang.decided, hang.recovered_unix_s) == ("hang", "observe", 0.0)
    assert hang.ended_unix_s > 0
    assert tell(hang).chapters[-1].what == "its attempt ended before it was over"
    assert (crash.cause, crash.decided) == ("crash", "restart")


@pytest.mark.parametrize("registered", [False, True])
def test_a_suggestion_names_the_command_by_which_a_person_does_it(
    tmp_path: Path, registered: bool
) -> None:
    """Who hangs never comes to the step at which all would save."""
    job = started(tmp_path, mode="suggest", registered=registered)
    before = MemoryStore(job.server).read()
    job.nodes["n1"].frozen = {0}
    job.run(2)
    standing = judge("job", before, MemoryStore(job.server).read())
    assert standing.suggestion == "`holdfast restart --no-save`, for the hang of rank 2 on node n1"
    job.nodes["n1"].frozen = set()
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == ""


def test_what_was_not_acted_on_is_no_failure_of_the_job(tmp_path: Path) -> None:
    job = started(tmp_path, mode="observe")
    job.nodes["n1"].frozen = {0}
    job.run(2)
    assert len(job.incidents()) == 1
    cluster = parse_cluster(MemoryStore(job.server).read())
    assert work_out(cluster, job.settings.checkpoint, job.now).failures == 0


def test_a_finding_that_is_not_sure_enough_is_no_incident(tmp_path: Path) -> None:
    job = started(tmp_path, mode="observe")
    node = job.nodes["n1"]
    state = node.local_state

    def silent(now: float) -> object:
        import dataclasses

        unsure = Finding(Kind.STALL, "n1", now, 0.5, [2])
        return dataclasses.replace(state(now), findings=[unsure])

    node.local_state = silent  # type: ignore[method-assign,assignment]
    job.run(3)
    assert job.incidents() == []


@pytest.mark.parametrize(
    ("found", "goes_on"),
    [
        (Incident("new", 0, "hang", "n1", [3]), "H"),
        (Incident("new", 0, "hang", "n0", [1]), "C"),
        (Incident("new", 0, "nonfinite"), "N"),
        (Incident("new", 0, "spike"), "N"),
        (Incident("new", 0, "restart"), "new"),
    ],
)
def test_of_what_a_pause_withheld_the_likest_goes_on(found: Incident, goes_on: str) -> None:
    withheld = [
        Incident("N", 0, "nonfinite", decided="paused"),
        Incident("C", 0, "stall", "n0", [0], decided="paused"),
        Incident("H", 0, "hang", "n1", [3], decided="paused"),
    ]
    cluster = Cluster(incidents={incident.identifier: incident for incident in withheld})
    assert continued(cluster, Plan(0, 1, "running"), found).identifier == goes_on
