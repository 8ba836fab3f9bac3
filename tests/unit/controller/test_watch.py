"""Who saw what went on since the account was turned last."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.policy.pretend_job import PLAN

from holdfast_sidecar.controller.accounting import AccountWatch


def watching() -> AccountWatch:
    watch = AccountWatch()
    watch.read("1", PLAN, 100.0)
    watch.read("2", PLAN, 100.3)
    return watch


def test_the_first_look_tells_nothing_of_what_was_before() -> None:
    watch = AccountWatch()
    watch.read("1", PLAN, 100.0)
    assert not watch.is_unbroken
    assert watching().is_unbroken


def test_whoever_kept_trying_while_the_store_was_away_was_awake() -> None:
    watch = watching()
    for second in range(101, 160):
        watch.blink(second)
    watch.read("2", PLAN, 160.0)
    assert watch.is_unbroken


def test_whoever_slept_meanwhile_was_not() -> None:
    watch = watching()
    watch.read("2", PLAN, 160.0)
    assert not watch.is_unbroken
    watch = watching()
    watch.blink(150.0)
    watch.blink(151.0)
    watch.read("2", PLAN, 152.0)
    assert not watch.is_unbroken


def test_where_another_attempt_has_begun_meanwhile_nobody_knows_since_when() -> None:
    watch = watching()
    watch.blink(105.0)
    watch.read("2", replace(PLAN, attempt=1), 110.0)
    assert not watch.is_unbroken


def test_a_store_that_lost_its_plan_for_a_moment_changes_nothing() -> None:
    watch = watching()
    watch.read("2", None, 101.0)
    watch.read("2", PLAN, 102.0)
    assert watch.is_unbroken
