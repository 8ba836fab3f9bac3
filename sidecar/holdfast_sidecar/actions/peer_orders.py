"""Writes peer orders into the pages of this node's ranks, and reads how far the ranks got."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast.page import Order, OrderKind, ReplyState, parse_reply
from holdfast_sidecar.actions.arming import write_to_pages
from holdfast_sidecar.pages import RankPage
from holdfast_sidecar.records.checkpoint import PeerOrder

FAILED = frozenset({ReplyState.MISSED, ReplyState.LEFT, ReplyState.VOID, ReplyState.FAILED})


def arm_peer(order: PeerOrder, pages: Iterable[RankPage], now_ns: int) -> bool:
    """Have ranks hold what other nodes copy: the armed step, and always the one that is through.

    Whether any page was written. `now_ns` is CLOCK_MONOTONIC.
    """
    if order.state == "standing":
        return False  # every snapshot is meant; a rank's last two are its copies' last two
    deadline_ns = now_ns + int(order.deadline_s * 1e9) if order.state == "armed" else 0
    wanted = Order(
        kind=OrderKind.PEER,
        attempt=order.attempt,
        epoch=order.epoch,
        step=order.step,
        deadline_ns=deadline_ns,
        identifier=order.identifier,
        keeps=order.through + 1,
    )
    return write_to_pages(wanted, pages, _replaces)


def _replaces(wanted: Order, present: Order) -> bool:
    """Not a stale leader's, and saying something new (the deadline, once set, stays)."""
    if present.is_withdrawn == wanted.is_withdrawn:
        wanted = dataclasses.replace(wanted, deadline_ns=present.deadline_ns)
    return wanted.epoch >= present.epoch and wanted != present


def read_copied(order: PeerOrder, pages: Iterable[RankPage]) -> tuple[dict[str, str], int]:
    """Identifier -> `copied` once all these ranks hold what was armed, `void` if one can't; and the
    boundary at which they copied it, -1 before."""
    if order.state != "armed":
        return {}, -1
    replies = [parse_reply(held.read(), OrderKind.PEER) for held in pages]
    states = [
        ReplyState.NONE if reply is None or reply.identifier != order.identifier else reply.state
        for reply in replies
    ]
    if any(state in FAILED for state in states):
        return {order.identifier: "void"}, -1
    if not states or any(state is not ReplyState.COPIED for state in states):
        return {}, -1
    steps = {reply.step for reply in replies if reply is not None}
    if len(steps) > 1:
        return {order.identifier: "void"}, -1
    return {order.identifier: "copied"}, min(steps)
