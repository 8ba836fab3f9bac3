"""The demonstration on fake GPUs must say so when Holdfast got something wrong."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from testing.demo_hardware import (
    Director,
    Done,
    Fault,
    Faults,
    Seen,
    Story,
    find,
    is_over,
    is_settled,
    judge,
    missing,
    stories,
)
from testing.fake_node import build_node

from holdfast_sidecar.cli.demonstration.job import Nodes
from holdfast_sidecar.cli.demonstration.screen import LineScreen
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore

HOT, FLAP, STORM, FALLEN = (
    next(story for story in stories(8) if story.fault is fault)
    for fault in (Fault.HEAT, Fault.LINK_FLAP, Fault.ECC_STORM, Fault.XID_79)
)


def done(story: Story) -> Done:
    return Done(story, "a", step=20, attempt=0, at_unix_s=100.0)


def finding(story: Story, ranks: list[int] | None = None) -> Finding:
    told = list(story.ranks) if ranks is None else ranks
    return Finding(story.finding, "a", 101.0, 0.9, ranks=told)


ENTRY = LedgerEntry(
    "c1",
    path="/c",
    step=30,
    attempt=0,
    epoch=1,
    parent="",
    verdict="complete",
    size_bytes=1,
    world_size=8,
    at_unix_s=110.0,
    requested_by="ecc_storm-GPU-5:a:101",
)
INCIDENT = Incident(
    "i1",
    0,
    "gpu",
    "a",
    [5],
    decided="restart",
    detected_unix_s=101.0,
    recovered_unix_s=115.0,
    step_reached=40,
    step_resumed=30,
)
ON_SPARE = Plan(1, 2, "running", members=[Member("b", "x", 0, 0, 8)])


def test_what_is_told_and_tied_to_the_right_rank_is_right() -> None:
    row = judge(done(HOT), Seen(finding(HOT), 102.5))
    assert (row.told_s, row.told_as, row.tied_to) == (2.5, "gpu_throttled", "rank 3 on a")
    assert (row.done, row.problems) == ("told only, training goes on", ())


def test_the_wrong_rank_is_a_problem() -> None:
    row = judge(done(HOT), Seen(finding(HOT, ranks=[4]), 102.5))
    assert row.problems == ("tied to ranks [4], should be [3]",)


def test_what_nobody_told_is_a_problem() -> None:
    assert judge(done(FLAP), Seen()).problems == ("was never told",)


def test_a_restart_for_a_link_that_flapped_is_a_problem() -> None:
    row = judge(done(FLAP), Seen(finding(FLAP), 102.0, incident=INCIDENT, plan=ON_SPARE))
    assert row.problems == ("the job was restarted for it",)


def test_a_storm_for_which_nothing_was_saved_is_a_problem() -> None:
    seen = Seen(finding(STORM), 102.0)
    assert judge(done(STORM), seen).problems == ("no checkpoint was made for it",)
    assert judge(done(STORM), dataclasses.replace(seen, saved=ENTRY)).done == "saved step 30"


def test_a_lost_gpu_is_right_when_the_spare_trains_and_who_lost_it_does_not() -> None:
    row = judge(done(FALLEN), Seen(finding(FALLEN), 100.1, incident=INCIDENT, plan=ON_SPARE))
    assert (row.problems, row.done) == ((), "goes on with node b, 10 steps again")


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (Seen(finding(FALLEN), 100.1), "the job was not taken off it"),
        (
            Seen(
                finding(FALLEN),
                100.1,
                incident=dataclasses.replace(INCIDENT, culprit_ranks=[2]),
                plan=ON_SPARE,
            ),
            "blamed rank 2 on a",
        ),
        (
            Seen(
                finding(FALLEN),
                100.1,
                incident=dataclasses.replace(INCIDENT, recovered_unix_s=0.0),
                plan=ON_SPARE,
            ),
            "did not recover",
        ),
        (
            Seen(
                finding(FALLEN),
                100.1,
                incident=INCIDENT,
                plan=dataclasses.replace(ON_SPARE, members=[Member("a", "x", 0, 0, 8)]),
            ),
            "node a still trains",
        ),
    ],
    ids=["nothing done", "wrong rank", "no recovery", "same node"],
)
def test_a_lost_gpu_that_is_not_answered_is_a_problem(seen: Seen, problem: str) -> None:
    assert judge(done(FALLEN), seen).problems == (problem,)


def cluster(*found: Finding, **more: object) -> Cluster:
    node = NodeReport("a", "x", 1, 0, 1, attempt=0, launcher_alive=True, findings=list(found))
    return Cluster(nodes={"a": node}, **more)  # type: ignore[arg-type]


def test_what_was_seen_stays_seen_and_is_over_once_it_is_told_no_more() -> None:
    seen = find(cluster(finding(HOT)), done(HOT), Seen(), 102.0)
    later = find(cluster(), done(HOT), seen, 105.0)
    assert (later.finding, later.found_unix_s) == (finding(HOT), 102.0)
    assert is_settled(done(HOT), later)
    assert not is_over(cluster(finding(HOT)), done(HOT))
    assert is_over(cluster(), done(HOT))


def test_a_storm_is_settled_by_a_checkpoint_that_was_made_for_it() -> None:
    other = dataclasses.replace(ENTRY, requested_by="link_flapping-mlx5_2:a:90")
    seen = find(cluster(finding(STORM), ledger={"c1": other}), done(STORM), Seen(), 102.0)
    assert not is_settled(done(STORM), seen)
    seen = find(cluster(finding(STORM), ledger={"c1": ENTRY}), done(STORM), seen, 112.0)
    assert is_settled(done(STORM), seen)


def test_an_incident_of_another_attempt_is_another_story() -> None:
    later = dataclasses.replace(INCIDENT, attempt=1)
    seen = find(cluster(finding(FALLEN), incidents={"i1": later}), done(FALLEN), Seen(), 102.0)
    assert seen.incident is None
    assert find(cluster(incidents={"i1": INCIDENT}), done(FALLEN), seen, 120.0).incident == INCIDENT


def test_with_few_gpus_the_stories_are_about_those_there_are() -> None:
    assert {story.gpu for story in stories(1)} == {-1, 0}
    assert Kind.GPU_FAULT in {story.finding for story in stories(2)}


def test_what_is_still_waited_for_is_told_in_words() -> None:
    told, seen = finding(STORM), Seen(finding(STORM))
    assert missing(done(STORM), Seen()) == "a storm of corrected errors to be told"
    assert missing(done(STORM), seen) == "a checkpoint for a storm of corrected errors"
    assert missing(done(STORM), Seen(told, saved=ENTRY)) == ""
    assert missing(done(FALLEN), Seen(finding(FALLEN))) == "the job to go on without node a"
    assert missing(done(FALLEN), Seen(finding(FALLEN), incident=INCIDENT)) == ""
    assert missing(done(HOT), Seen(finding(HOT))) == ""


def test_who_looks_on_hears_what_the_director_waits_for(tmp_path: Path) -> None:
    node = build_node(tmp_path / "node", tmp_path / "library", gpus=1, ports=0)
    said = io.StringIO()
    store = MemoryStore(MemoryServer(), "demo")
    faults = Faults(node, lambda rank: 0)
    director = Director(stories(8), Nodes(), store, LineScreen(said, 0.0), faults)
    assert director.wait_for("the first steps", lambda: True)
    assert "0 of 5 stories done, no rank steps yet, waiting for the first steps" in said.getvalue()
