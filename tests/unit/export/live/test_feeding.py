from __future__ import annotations

from dataclasses import replace

from tests.unit.export.picture import picture as known_picture
from tests.unit.export.picture import ranks
from tests.unit.ranks.large_job import Job, picture, plan_of
from tests.unit.ranks.scene import history, look, steps

from holdfast.contract.page import Phase
from holdfast_sidecar.export.live.build import GONE, told_now


def test_who_leads_is_told_of_all_ranks() -> None:
    told = told_now(picture(Job(64)))
    assert [rank.rank for rank in told.ranks] == list(range(64))
    assert (told.world_size, told.step) == (64, 1170)
    assert {rank.phase for rank in told.ranks} <= {int(phase) for phase in Phase}


def test_others_see_their_own_ranks_alone() -> None:
    for orders in ({"is_leader": False}, {"is_leader": False, "store_up": False}):
        told = told_now(picture(Job(64), **orders))
        assert [rank.rank for rank in told.ranks] == list(range(8))


def test_own_ranks_are_seen_as_they_are_now() -> None:
    own = history(look(10.0, Phase.BACKWARD, step=99, records=steps(20, forward=30)))
    told = told_now(replace(known_picture(), ranks=ranks(own)))
    assert [(rank.rank, rank.phase) for rank in told.ranks] == [(0, int(Phase.BACKWARD))]
    assert told.ranks[0].own_s is not None
    assert told.ranks[0].own_s > 0


def test_a_report_from_before_the_store_went_away_does_not_hold_up_the_job_s_step() -> None:
    plan = picture(Job(1)).orders.plan
    assert plan is not None
    own = replace(ranks(history(look(10.0, step=5000))), attempt=plan.attempt)
    away = picture(Job(1), store_up=False)
    step = told_now(away).step
    assert step is not None
    assert step < 5000
    assert told_now(replace(away, ranks=own)).step == 5000


def test_nothing_is_told_once_the_job_is_over() -> None:
    assert told_now(picture(Job(64, state="done"))).ranks == []


def test_nothing_is_told_of_an_attempt_that_another_followed() -> None:
    later = replace(plan_of(Job(64)), attempt=9)
    assert told_now(picture(Job(64), plan=later)).ranks == []


def test_ranks_of_two_roles_are_told_apart() -> None:
    plan = plan_of(Job(16))
    members = [replace(plan.members[0], role="reader"), plan.members[1]]
    told = told_now(picture(Job(16), plan=replace(plan, members=members)))
    assert {rank.rank: rank.role for rank in told.ranks}[0] == "reader"
    assert {rank.rank: rank.role for rank in told.ranks}[8] == "default"


def test_a_rank_that_is_dead_works_no_more() -> None:
    dead = history(look(10.0, records=steps(20, forward=30)), look(11.0, is_gone=True))
    (told,) = told_now(replace(known_picture(), ranks=ranks(dead))).ranks
    assert (told.own_s, told.phase) == (0.0, GONE)
