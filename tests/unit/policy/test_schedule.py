"""The schedule from what a leader reads: costs of checkpoints, failures of this run."""

from __future__ import annotations

import pytest

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import CheckpointCost, cost_of, work_out
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident, Plan

SETTINGS = CheckpointSettings()
BEGAN = 1e9


def entry(name: str, at: float, blocked_s: float, write_s: float) -> LedgerEntry:
    return LedgerEntry(
        name, "", 1, 0, 1, "", "complete", 1, 8, at, blocked_s=blocked_s, write_s=write_s
    )


def incident(cause: str, at: float) -> Incident:
    return Incident(f"i{at}", 0, cause, detected_unix_s=at)


def job(*entries: LedgerEntry, incidents: tuple[Incident, ...] = ()) -> Cluster:
    return Cluster(
        plan=Plan(0, 1, "running", world_size=16, began_unix_s=BEGAN),
        ledger={e.identifier: e for e in entries},
        incidents={i.identifier: i for i in incidents},
    )


def test_before_anything_was_measured_the_first_comes_soon() -> None:
    schedule = work_out(job(), SETTINGS, BEGAN + 5)
    assert schedule.cost is None
    assert schedule.interval.target_s == SETTINGS.least_every_s


def test_a_cost_is_the_median_of_the_newest_three() -> None:
    old = entry("a", 1.0, 50.0, 500.0)
    newest = [entry("b", 2.0, 0.1, 9.0), entry("c", 3.0, 0.3, 100.0), entry("d", 4.0, 0.2, 10.0)]
    assert cost_of([*newest, old]) == CheckpointCost(0.2, 10.0)


def test_what_was_not_measured_is_no_cost() -> None:
    assert cost_of([entry("a", 1.0, 0.0, 0.0)]) is None


def test_only_failures_of_this_run_count_and_nothing_planned() -> None:
    seen = (
        incident("crash", BEGAN - 100),
        incident("grow", BEGAN + 10),
        incident("crash", BEGAN + 20),
        incident("hang", BEGAN + 30),
    )
    schedule = work_out(job(incidents=seen), SETTINGS, BEGAN + 3600)
    assert schedule.failures == 2
    assert schedule.rate.mtbf_s == pytest.approx(3600 / 2.5)


def test_failures_bring_checkpoints_closer_together() -> None:
    costly = entry("a", 1.0, 5.0, 6.0)
    quiet = work_out(job(costly), SETTINGS, BEGAN + 3600)
    rough = work_out(
        job(costly, incidents=tuple(incident("crash", BEGAN + 600.0 * i) for i in range(1, 6))),
        SETTINGS,
        BEGAN + 3600,
    )
    assert quiet.interval.bound == "most_every_s"
    assert rough.interval.bound == "optimum"
    assert rough.interval.target_s < 90
