"""Writes orders into the pages of this node's ranks: a checkpoint, snapshots, a trace, stop.

Only pages of the attempt that the order names get it, and each order is written once per page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from holdfast.page import Order, OrderKind
from holdfast_sidecar.pages import RankPage
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SnapshotOrder, TraceOrder
from holdfast_sidecar.records.plan import Plan

ALWAYS_NS = 2**63 - 1
"""The deadline of an order that stands until another replaces it."""


def arm_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Arm a coordinated checkpoint; whether any page was written. `now_ns` is CLOCK_MONOTONIC."""
    if order.state != "armed" or order.writers:
        return False  # with writers it is of a snapshot that exists: no rank has to do anything
    wanted = Order(
        kind=OrderKind.CHECKPOINT,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=now_ns + int(order.deadline_s * 1e9),
        identifier=order.identifier,
        slots=int(order.mode == "snapshot"),
    )
    return write_to_pages(wanted, pages)


def withdraw_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage]) -> bool:
    """Take an order back where it lies: a void one, so that no rank goes to its step and waits
    there; one whose snapshots are written, so that the ranks let go of their slots."""
    is_done = order.state == "complete" and order.mode == "snapshot"
    if order.state != "void" and not is_done:
        return False
    withdrawn = False
    for held in pages:
        present = held.read_order(OrderKind.CHECKPOINT)
        if present is None or present.identifier != order.identifier or present.is_withdrawn:
            continue
        held.write_order(dataclasses.replace(present, deadline_ns=0))
        withdrawn = True
    return withdrawn


def arm_trace(order: TraceOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Have those ranks trace that are meant; whether any page was written. `now_ns` is
    CLOCK_MONOTONIC."""
    if order.state != "armed":
        return False
    wanted = Order(
        kind=OrderKind.TRACE,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=now_ns + int(order.deadline_s * 1e9),
        identifier=order.identifier,
        every=order.steps,
    )
    return write_to_pages(wanted, [held for held in pages if held.identity.rank in order.ranks])


def withdraw_trace(order: TraceOrder | None, pages: Iterable[RankPage]) -> bool:
    """Take back where it lies what is not, or no longer, to be traced; whether any page was
    written."""
    wanted = order.identifier if order is not None and order.state == "armed" else ""
    withdrawn = False
    for held in pages:
        present = held.read_order(OrderKind.TRACE)
        if present is not None and present.identifier != wanted and not present.is_withdrawn:
            held.write_order(dataclasses.replace(present, deadline_ns=0))
            withdrawn = True
    return withdrawn


def order_snapshots(
    order: SnapshotOrder, pages: Iterable[RankPage], slots: int, slots_made: str
) -> bool:
    """Tell ranks how often to take snapshots, into how many slots; whether any page was written.

    slots_made: a name for the slots as they are: ranks look at them again when it is another one.
    """
    every = order.every_steps if slots > 1 else 0
    wanted = Order(
        kind=OrderKind.SNAPSHOT,
        attempt=order.attempt,
        epoch=order.epoch,
        step=0,
        deadline_ns=ALWAYS_NS,
        identifier=f"{every}-{slots}-{slots_made}",
        every=every,
        slots=slots,
    )
    return write_to_pages(wanted, pages)


def order_stop(plan: Plan, pages: Iterable[RankPage], now_ns: int, grace_s: float) -> bool:
    """Ask the ranks of a stopped job to leave at their next step boundary."""
    if plan.state != "stopped":
        return False
    wanted = Order(
        kind=OrderKind.STOP,
        attempt=plan.attempt,
        epoch=plan.epoch,
        step=0,
        deadline_ns=now_ns + int(grace_s * 1e9),
        identifier=f"stop-{plan.attempt}",
    )
    return write_to_pages(wanted, pages)


def _replaces(wanted: Order, present: Order) -> bool:
    """A page's order gives way to another one of the same or a later leader."""
    return wanted.identifier != present.identifier and wanted.epoch >= present.epoch


def write_to_pages(
    wanted: Order,
    pages: Iterable[RankPage],
    replaces: Callable[[Order, Order], bool] = _replaces,
) -> bool:
    """Write an order where it is of the page's attempt, not a stale leader's, and `replaces` (the
    wanted, the present) what stands there; whether any page was written."""
    written = False
    for held in pages:
        if held.identity.attempt != wanted.attempt or wanted.epoch < held.identity.epoch:
            continue
        present = held.read_order(wanted.kind)
        if present is not None and not replaces(wanted, present):
            continue
        held.write_order(wanted)
        written = True
    return written
