"""What a person asked for, and a node put outside, under a leader that dies at any write."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.troubled_job import (
    Stroke,
    TroubledJob,
    answer_is_lost,
    incidents_of,
    sidecar_dies,
)

from holdfast_sidecar.config.settings import PolicySettings

WRITES = 6
"""A wished restart's: plan, incident, request, incident, plan, key."""

STROKES = [
    *((at, when, sidecar_dies) for at in range(1, WRITES + 1) for when in ("before", "after")),
    *((at, "after", answer_is_lost) for at in range(1, WRITES + 1)),
]


def make(folder: Path, stroke: Stroke | None) -> TroubledJob:
    policy = PolicySettings(backoff_s=0.1, evidence_timeout_s=10.0)
    return TroubledJob(folder, stroke, nodes=2, spares=1, least=2, policy=policy)


@pytest.mark.parametrize(("at", "when", "strike"), STROKES)
def test_a_wished_restart_comes_about_once(
    tmp_path: Path, at: int, when: str, strike: object
) -> None:
    job = make(tmp_path, Stroke(at, when, strike))  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    job.is_armed = True
    job.ask("w", "restart")
    job.run_until(lambda: job.is_running(1), 40)
    job.run(5)
    assert job.stroke is not None
    assert job.stroke.is_over, "there were fewer writes"
    assert job.is_running(1), job.story()
    (incident,) = incidents_of(job, 0)
    assert (incident.identifier, incident.cause, incident.decided) == ("w", "restart", "restart")
    assert incident.recovered_unix_s > 0
    assert job.plan is not None
    assert job.plan.restarts == 0
    assert job.requests() == {}
    job.check()


@pytest.mark.parametrize(("at", "when"), [(at, w) for at in (1, 2) for w in ("before", "after")])
def test_a_pause_is_taken_in_once_and_lasts(tmp_path: Path, at: int, when: str) -> None:
    job = make(tmp_path, Stroke(at, when, sidecar_dies))
    job.run_until(lambda: job.is_running(0))
    job.is_armed = True
    job.ask("p", "pause", for_s=30.0)
    job.run(6)
    assert job.stroke is not None
    assert job.stroke.is_over, "there were fewer writes"
    assert job.plan is not None
    assert job.plan.pause is not None
    assert job.requests() == {}
    job.nodes["n1"].crash(0, -9, job.now)
    job.run(10)
    assert (job.plan.attempt, job.plan.state) == (0, "running")
    job.run_until(lambda: job.is_running(1), 40)
    job.check()


@pytest.mark.parametrize("at", range(1, WRITES + 1))
def test_a_node_is_put_outside_once_whoever_carries_it_to_its_end(tmp_path: Path, at: int) -> None:
    job = make(tmp_path, Stroke(at, "after", sidecar_dies))
    for attempt in range(3):
        job.run_until(lambda: job.is_running(attempt), 40)  # noqa: B023
        job.run(0.5)
        job.is_armed = attempt == 2
        job.nodes["n1"].crash(attempt % 2, -9, job.now)
    job.run_until(lambda: job.is_running(3), 40)
    job.run(3)
    assert job.stroke is not None
    assert job.stroke.is_over, "there were fewer writes"
    assert job.is_running(3), job.story()
    assert job.plan is not None
    assert [member.node for member in job.plan.members] == ["n0", "n2"]
    assert [one.part for one in job.plan.outside] == ["machine-of-n1"]
    (incident,) = incidents_of(job, 2)
    told = [line for line in incident.evidence if "is kept outside from now on" in line]
    assert (incident.escalation, len(told)) == ("without_node", 1)
    job.check()
