from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast.page import OrderKind
from holdfast_sidecar.actions.arming import arm_checkpoint, order_stop, withdraw_checkpoint
from holdfast_sidecar.coordination.reports import CheckpointOrder, Plan
from holdfast_sidecar.pages import Pages

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
