"""Writes orders into the pages of this node's ranks: checkpoint at a step (or not), stop.

Only pages of the attempt that the order names get it, and each order is written once per page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast.page import Order, OrderKind
from holdfast_sidecar.coordination.reports import CheckpointOrder, Plan
from holdfast_sidecar.pages import RankPage


def arm_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Arm a coordinated checkpoint; whether any page was written. `now_ns` is CLOCK_MONOTONIC."""
    if order.state != "armed":
        return False
    wanted = Order(
        kind=OrderKind.CHECKPOINT,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=now_ns + int(order.deadline_s * 1e9),
        identifier=order.identifier,
    )
    return _write(wanted, pages)


def withdraw_checkpoint(order: CheckpointOrder, pages: Iterable[RankPage]) -> bool:
    """Take a void order back where it lies, so that no rank goes to its step and waits there."""
    if order.state != "void":
        return False
    withdrawn = False
    for held in pages:
        present = held.read_order(OrderKind.CHECKPOINT)
        if present is None or present.identifier != order.identifier or present.is_withdrawn:
            continue
        held.write_order(dataclasses.replace(present, deadline_ns=0))
        withdrawn = True
    return withdrawn


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
    return _write(wanted, pages)


def _write(wanted: Order, pages: Iterable[RankPage]) -> bool:
    written = False
    for held in pages:
        if held.identity.attempt != wanted.attempt or wanted.epoch < held.identity.epoch:
            continue
        present = held.read_order(wanted.kind)
        if present is not None and not _replaces(wanted, present):
            continue
        held.write_order(wanted)
        written = True
    return written


def _replaces(wanted: Order, present: Order) -> bool:
    """A page's order gives way to another one of the same or a later leader."""
    return wanted.identifier != present.identifier and wanted.epoch >= present.epoch
