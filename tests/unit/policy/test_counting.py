"""Counters of the job: whatever becomes known later, and whoever leads, none of them falls."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.export.picture import picture

from holdfast_sidecar.controller.checkpointing import of_run, with_ended, with_skipped
from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.exposition import while_leading
from holdfast_sidecar.export.metrics import draw_job
from holdfast_sidecar.policy.budget import count, counted_ever, keep_counted, taken_back
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.checkpoint import CheckpointOrder, CheckpointTally, LedgerEntry
from holdfast_sidecar.records.metric import Labels
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.memory_store import MemoryStore

COUNTERS = {entry.name for entry in CATALOGUE if entry.leader_only and entry.kind != "gauge"}

PICTURE = picture()

CRASH = Incident(
    "i1",
    1,
    "crash",
    "b",
    [1],
    0.9,
    detected_unix_s=5.0,
    culprit_part="m-b",
)


def test_what_turns_out_to_be_another_cause_stays_counted_under_the_first() -> None:
    ill = keep_counted(CRASH, dataclasses.replace(CRASH, cause="gpu", remedy="reset_gpu"))
    assert count([ill], "incident") == {"crash": 1, "gpu": 1}
    # The program said itself what it died of: it was no GPU after all.
    back = keep_counted(ill, dataclasses.replace(ill, cause="crash", remedy=""))
    assert count([back], "incident") == {"crash": 1, "gpu": 1}


def test_what_was_lost_stays_counted_under_the_cause_it_was_told_by() -> None:
    over = dataclasses.replace(CRASH, recovered_unix_s=9.0)
    assert not count([CRASH], "lost")
    later = keep_counted(over, dataclasses.replace(over, cause="link"))
    assert count([later], "lost") == {"crash": 1, "link": 1}


def test_a_blame_that_is_taken_back_stays_counted_and_is_held_against_nobody() -> None:
    cleared = keep_counted(CRASH, dataclasses.replace(CRASH, is_of_script=True))
    assert taken_back([CRASH]) == {}
    assert taken_back([cleared]) == {("b", "crash"): 1}


def test_what_was_withheld_first_counts_as_both_once_it_is_acted_on() -> None:
    watched = dataclasses.replace(CRASH, decided="observe")
    assert counted_ever(watched) >= {"withheld observe"}
    assert "incident crash" not in counted_ever(watched)
    acted_on = keep_counted(watched, dataclasses.replace(watched, decided="restart"))
    assert counted_ever(acted_on) >= {"withheld observe", "incident crash"}


def test_an_incident_that_is_only_better_known_is_written_as_it_was() -> None:
    more = dataclasses.replace(CRASH, evidence=["exit code 1"])
    assert keep_counted(CRASH, more) is more
    assert keep_counted(None, CRASH) is CRASH


def order(identifier: str, state: str, trigger: str = "periodic") -> CheckpointOrder:
    return CheckpointOrder(identifier, 0, 1, 10, "/c", state, 60.0, trigger=trigger)


def test_a_checkpoint_that_ended_is_counted_once_whoever_looks() -> None:
    tally = CheckpointTally()
    for seen in (None, order("c1", "armed"), order("c1", "void"), order("c1", "void"), None):
        tally = with_ended(tally, seen, None)
    tally = with_ended(tally, order("c2", "complete", "manual"), None)
    assert tally.ended == {"void periodic": 1, "complete manual": 1}
    assert tally.measured == 0


def test_what_complete_ones_took_is_added_up() -> None:
    tally = CheckpointTally()
    for name, blocked_s in (("c1", 0.5), ("c2", 0.25)):
        entry = LedgerEntry(
            name, "/c", 1, 0, 1, "", "complete", 1, 2, 0.0, blocked_s=blocked_s, write_s=4.0
        )
        tally = with_ended(tally, order(name, "complete"), entry)
    assert (tally.measured, tally.blocked_s, tally.write_s) == (2, 0.75, 8.0)


def test_one_that_is_skipped_is_counted_once_for_each_that_was_slow() -> None:
    tally = CheckpointTally()
    for slow in ("", "c1", "c1", "", "c2"):
        tally = with_skipped(tally, slow)
    assert tally.ended == {"skipped periodic": 2}


def test_a_run_s_count_begins_anew_and_what_was_counted_stays_counted() -> None:
    first = dataclasses.replace(with_ended(CheckpointTally(), order("c1", "void"), None), run="1.5")
    assert of_run(first, "1.5") is of_run(first, "") is first
    again = of_run(first, "2.5")
    assert with_ended(again, order("c1", "void"), None).ended == {}
    assert with_ended(again, order("c2", "void"), None).ended == {"void periodic": 1}
    of_before = dataclasses.replace(first, run="")
    assert of_run(of_before, "1.5") is of_before, "written by a release that did not say"


def test_the_counters_of_a_run_say_nothing_of_the_run_before(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=10)

    def saved() -> float:
        return max((saves(page) for page in told(job).values()), default=0.0)

    job.run_until(lambda: saved() >= 5, 60)
    for node in job.nodes.values():
        job.until = int(node.step) + 5
    job.run_until(lambda: job.plan is not None and job.plan.state == "done", 60)
    job.nodes.clear()
    job.until = 10**9
    for name in ("n5", "n6"):
        job.add(name)
    job.run_until(lambda: job.is_running(1), 60)
    job.run(0.3)
    assert saved() == 0
    job.run_until(lambda: saved() == 1, 60)


def told(job: SimulatedJob) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """node -> the counters of the job that it tells now, as its exporter would, which may go on
    though all else of it hangs."""
    pages = {}
    for node in job.nodes.values():
        orders = node.coordinator.orders()
        shown = while_leading(dataclasses.replace(PICTURE, orders=orders), orders, job.now)
        if shown.orders.is_leader:
            pages[node.name] = {
                (("name", s.name), *sorted(s.labels.items())): s.value
                for s in draw_job(shown, Labels({"run": "job"}))
                if s.name in COUNTERS
            }
    return pages


@pytest.mark.parametrize("seed", range(2))
def test_a_change_of_leader_lets_no_counter_fall(tmp_path: Path, seed: int) -> None:
    job = SimulatedJob(tmp_path, nodes=3, least=2, registered=True, every_steps=10, seed=seed)
    highest: dict[tuple[tuple[str, str], ...], float] = {}
    leaders: list[str] = []

    def look() -> None:
        telling = {name: page for name, page in told(job).items() if page}
        assert len(telling) <= 1, "two tell of the job"
        for name, page in telling.items():
            if name not in leaders[-1:]:
                leaders.append(name)
            for series, value in page.items():
                assert value >= highest.get(series, 0.0), (name, series)
                highest[series] = value

    def go_on(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            job.tick()
            look()

    go_on(20.0)
    assert saves(highest) > 0
    before = saves(highest)
    job.nodes[leaders[-1]].dead = True
    go_on(20.0)
    assert len(leaders) > 1
    assert total(highest, "holdfast_job_incidents_total") > 0
    go_on(20.0)
    assert saves(highest) > before
    assert parse_cluster(MemoryStore(job.server).read()).tally.counted


def total(highest: dict[tuple[tuple[str, str], ...], float], name: str) -> float:
    return sum(value for series, value in highest.items() if ("name", name) in series)


def saves(highest: dict[tuple[tuple[str, str], ...], float]) -> float:
    name = ("name", "holdfast_checkpoint_saves_total")
    return sum(v for s, v in highest.items() if name in s and ("result", "complete") in s)
