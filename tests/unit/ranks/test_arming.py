from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast.contract.page import OrderKind
from holdfast_sidecar.ranks.page import (
    Pages,
    arm_checkpoint,
    arm_trace,
    order_snapshots,
    order_stop,
    withdraw_checkpoint,
    withdraw_trace,
)
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SnapshotOrder, TraceOrder
from holdfast_sidecar.records.plan import Plan

ORDER = CheckpointOrder("c1", 2, 5, 400, "/checkpoints/step-400-c1", "armed", 120.0)


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    write_page(tmp_path, attempt=2, local_rank=0, epoch=5)
    write_page(tmp_path, attempt=2, local_rank=1, epoch=5)
    made = Pages(tmp_path)
    made.refresh()
    yield made
    made.close()


def armed(pages: Pages) -> list[str]:
    orders = [held.read_order(OrderKind.CHECKPOINT) for held in pages.held()]
    return [order.identifier for order in orders if order is not None]


def test_every_rank_of_the_attempt_gets_the_order_once(pages: Pages) -> None:
    assert arm_checkpoint(ORDER, pages.held(), now_ns=1_000)
    assert not arm_checkpoint(ORDER, pages.held(), now_ns=2_000)
    order = pages.held()[0].read_order(OrderKind.CHECKPOINT)
    assert order is not None
    assert (order.step, order.attempt, order.epoch) == (400, 2, 5)
    assert order.deadline_ns == 120_000_001_000
    assert armed(pages) == ["c1", "c1"]


def test_a_later_order_replaces_an_earlier_one(pages: Pages) -> None:
    arm_checkpoint(ORDER, pages.held(), now_ns=0)
    later = dataclasses.replace(ORDER, identifier="c2", epoch=6, step=500)
    assert arm_checkpoint(later, pages.held(), now_ns=0)
    assert armed(pages) == ["c2", "c2"]


@pytest.mark.parametrize(
    "changes",
    [{"attempt": 1}, {"attempt": 3}, {"epoch": 4}, {"state": "void"}, {"state": "complete"}],
    ids=["an earlier attempt", "a later attempt", "a stale epoch", "void", "complete"],
)
def test_nothing_is_armed_for(changes: dict[str, object], pages: Pages) -> None:
    assert not arm_checkpoint(dataclasses.replace(ORDER, **changes), pages.held(), 0)  # type: ignore[arg-type]
    assert armed(pages) == []


def test_a_stale_leader_does_not_replace_a_newer_ones_order(pages: Pages) -> None:
    arm_checkpoint(dataclasses.replace(ORDER, identifier="new", epoch=7), pages.held(), 0)
    assert not arm_checkpoint(dataclasses.replace(ORDER, epoch=6), pages.held(), 0)
    assert armed(pages) == ["new", "new"]


def test_a_void_order_is_withdrawn_where_it_lies_once(pages: Pages) -> None:
    void = dataclasses.replace(ORDER, state="void")
    assert not withdraw_checkpoint(void, pages.held())
    arm_checkpoint(ORDER, pages.held(), now_ns=0)
    assert not withdraw_checkpoint(ORDER, pages.held())
    assert not withdraw_checkpoint(dataclasses.replace(void, identifier="c0"), pages.held())
    assert withdraw_checkpoint(void, pages.held())
    assert not withdraw_checkpoint(void, pages.held())
    orders = [held.read_order(OrderKind.CHECKPOINT) for held in pages.held()]
    assert [(o.identifier, o.is_withdrawn) for o in orders if o] == [("c1", True), ("c1", True)]
    assert not arm_checkpoint(ORDER, pages.held(), now_ns=0)


def test_a_stopped_plan_asks_the_ranks_to_leave(pages: Pages) -> None:
    assert not order_stop(Plan(2, 5, "running"), pages.held(), 0, 10.0)
    assert order_stop(Plan(2, 5, "stopped"), pages.held(), 0, 10.0)
    assert not order_stop(Plan(2, 5, "stopped"), pages.held(), 0, 10.0)
    assert not order_stop(Plan(3, 6, "stopped"), pages.held(), 0, 10.0)


def test_a_checkpoint_of_snapshots_is_armed_as_one(pages: Pages) -> None:
    arm_checkpoint(dataclasses.replace(ORDER, mode="snapshot"), pages.held(), 0)
    order = pages.held()[0].read_order(OrderKind.CHECKPOINT)
    assert order is not None
    assert order.slots > 0


def test_a_snapshot_that_exists_is_written_without_the_ranks(pages: Pages) -> None:
    rescue = dataclasses.replace(ORDER, mode="snapshot", writers={"0": "a", "1": "a"})
    assert not arm_checkpoint(rescue, pages.held(), 0)


@pytest.mark.parametrize(
    ("mode", "state", "withdrawn"),
    [
        ("snapshot", "armed", False),
        ("snapshot", "writing", False),
        ("snapshot", "complete", True),
        ("snapshot", "void", True),
        ("direct", "complete", False),
        ("direct", "void", True),
    ],
)
def test_ranks_let_go_of_their_slots_once_these_are_written(
    mode: str, state: str, withdrawn: bool, pages: Pages
) -> None:
    order = dataclasses.replace(ORDER, mode=mode)
    arm_checkpoint(order, pages.held(), 0)
    assert withdraw_checkpoint(dataclasses.replace(order, state=state), pages.held()) == withdrawn


def test_a_rhythm_stands_until_another_replaces_it(pages: Pages) -> None:
    rhythm = SnapshotOrder(2, 5, every_steps=4)
    assert order_snapshots(rhythm, pages.held(), 3, "ab")
    assert not order_snapshots(rhythm, pages.held(), 3, "ab")
    order = pages.held()[0].read_order(OrderKind.SNAPSHOT)
    assert order is not None
    assert (order.every, order.slots, order.is_withdrawn) == (4, 3, False)
    assert order_snapshots(rhythm, pages.held(), 3, "ac"), "other slots, to be looked at again"
    assert not order_snapshots(dataclasses.replace(rhythm, attempt=1), pages.held(), 3, "ad")


@pytest.mark.parametrize(("slots", "every"), [(2, 4), (1, 0), (0, 0)])
def test_with_fewer_than_two_slots_no_rank_takes_snapshots(
    slots: int, every: int, pages: Pages
) -> None:
    order_snapshots(SnapshotOrder(2, 5, every_steps=4), pages.held(), slots, "ab")
    order = pages.held()[0].read_order(OrderKind.SNAPSHOT)
    assert order is not None
    assert (order.every, order.slots) == (every, slots)


TRACE = TraceOrder("t1", 2, 5, 400, 3, "armed", 60.0, "r1", ranks=[1])


def traces(pages: Pages) -> list[tuple[str, bool] | None]:
    orders = [held.read_order(OrderKind.TRACE) for held in pages.held()]
    return [None if order is None else (order.identifier, order.is_withdrawn) for order in orders]


def test_a_trace_is_ordered_of_the_ranks_that_are_meant_alone(pages: Pages) -> None:
    assert arm_trace(TRACE, pages.held(), now_ns=1_000)
    assert not arm_trace(TRACE, pages.held(), now_ns=2_000)
    assert traces(pages) == [None, ("t1", False)]
    order = pages.held()[1].read_order(OrderKind.TRACE)
    assert order is not None
    assert (order.step, order.every, order.deadline_ns) == (400, 3, 60_000_001_000)


@pytest.mark.parametrize(
    "changes",
    [{"attempt": 1}, {"attempt": 3}, {"epoch": 4}, {"state": "void"}, {"state": "taken"}],
    ids=["an earlier attempt", "a later attempt", "a stale epoch", "void", "taken"],
)
def test_a_stale_trace_is_refused(pages: Pages, changes: dict[str, object]) -> None:
    stale = dataclasses.replace(TRACE, **changes)  # type: ignore[arg-type]
    assert not arm_trace(stale, pages.held(), now_ns=0)
    assert traces(pages) == [None, None]


@pytest.mark.parametrize(
    "now",
    [None, dataclasses.replace(TRACE, state="void"), dataclasses.replace(TRACE, identifier="t2")],
    ids=["gone", "void", "another"],
)
def test_a_trace_that_is_no_longer_ordered_is_taken_back_once(
    pages: Pages, now: TraceOrder | None
) -> None:
    arm_trace(TRACE, pages.held(), now_ns=0)
    assert not withdraw_trace(TRACE, pages.held())
    assert withdraw_trace(now, pages.held())
    assert traces(pages) == [None, ("t1", True)]
    assert not withdraw_trace(now, pages.held())
