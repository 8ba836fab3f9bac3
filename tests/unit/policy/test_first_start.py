"""How long a run's first start took."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.start import FirstStart
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

PLAN = Plan(0, 1, "running", [Member("a", "i", 0, 0, 2)], world_size=2, began_unix_s=1000.0)


def at_step(*steps: int, resumed: int = 0) -> Cluster:
    ranks = [
        RankReport(rank, rank, 100, step, "forward", 0.1, 0.1, 0.1, resumed_step=resumed)
        for rank, step in enumerate(steps)
    ]
    return Cluster(nodes={"a": NodeReport("a", "i", 1, 0, 1, 0, True, ranks=ranks)})


def test_it_is_over_once_every_rank_has_made_a_step() -> None:
    start = FirstStart()
    assert start.follow(at_step(), PLAN, 1001.0) is None
    assert start.follow(at_step(1, 0), PLAN, 1004.0) is None
    assert start.follow(at_step(5, 1), PLAN, 1006.0) == 6.0
    assert start.follow(at_step(90, 90), PLAN, 1100.0) == 6.0


def test_who_resumes_has_made_none_before_the_next_one() -> None:
    start = FirstStart()
    assert start.follow(at_step(40, 40, resumed=40), PLAN, 1003.0) is None
    assert start.follow(at_step(41, 41, resumed=40), PLAN, 1008.0) == 8.0


def test_who_leads_later_does_not_know_it() -> None:
    start = FirstStart()
    assert start.follow(at_step(50, 50), PLAN, 1300.0) is None
    # A node that is silent for a moment is no start.
    assert start.follow(at_step(60), PLAN, 1301.0) is None
    assert start.follow(at_step(70, 70), PLAN, 1302.0) is None


def test_a_restart_is_no_start_and_leaves_it_known() -> None:
    start = FirstStart()
    start.follow(at_step(), PLAN, 1001.0)
    start.follow(at_step(1, 1), PLAN, 1006.0)
    again = dataclasses.replace(PLAN, attempt=1, restarts=1)
    assert start.follow(at_step(), again, 2000.0) == 6.0
    assert start.follow(at_step(9, 9), again, 2100.0) == 6.0


def test_another_run_begins_anew() -> None:
    start = FirstStart()
    start.follow(at_step(), PLAN, 1001.0)
    start.follow(at_step(1, 1), PLAN, 1006.0)
    other = dataclasses.replace(PLAN, began_unix_s=5000.0)
    assert start.follow(at_step(), other, 5001.0) is None
    assert start.follow(at_step(1, 1), other, 5030.0) == 30.0


def test_a_clock_that_was_set_back_meanwhile_tells_nothing_of_it() -> None:
    start = FirstStart()
    assert start.follow(at_step(), PLAN, 1001.0) is None
    assert start.follow(at_step(1, 1), PLAN, 400.0) is None
    assert start.follow(at_step(2, 2), PLAN, 1500.0) is None
