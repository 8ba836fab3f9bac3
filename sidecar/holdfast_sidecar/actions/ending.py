"""Ends a hung rank of this node, when everything that must be so before a kill is so."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.coordination.reports import Plan
from holdfast_sidecar.local_state import Orders
from holdfast_sidecar.pages import RankPage

logger = logging.getLogger(__name__)

HANGS = frozenset({"hang", "stall"})
"""Causes whose culprit still lives and has to be ended; crashed ranks and lost nodes need none."""


@dataclass(frozen=True)
class Warrant:
    """What is known at the moment of the kill."""

    node: str
    mode: str
    evidence_for: str
    """Incident whose evidence this node has on disk."""
    everyone_kept: bool
    """Whether every node of the attempt has kept its evidence too, or the time for it is over."""


def refusal(orders: Orders, warrant: Warrant) -> str:
    """Why nothing may be killed now; empty when the plan's culprits on this node may be."""
    plan = orders.plan
    if plan is None or plan.state not in ("evidence", "ended") or plan.cause not in HANGS:
        return "no hang is being dealt with"
    if plan.culprit_node != warrant.node or not plan.culprit_ranks:
        return "the culprit is not on this node"
    if not orders.store_up:
        return "Redis is away"
    if orders.lease.epoch < plan.epoch:
        return f"the plan's epoch {plan.epoch} is not the leader's {orders.lease.epoch}"
    if warrant.mode != "act":
        return f"mode is {warrant.mode}"
    if warrant.evidence_for != plan.incident:
        return "the evidence is not on disk yet"
    if not warrant.everyone_kept:
        return "other nodes are still keeping evidence, which dies with the culprit's peers"
    return ""


def end_culprits(plan: Plan, pages: Iterable[RankPage]) -> bool:
    """Kill the plan's culprits among these pages; whether any was still there.

    Through the handle opened when the page was first seen, and only in the plan's own attempt: a
    sidecar that slept between check and act harms nobody.
    """
    ended = False
    for held in pages:
        identity = held.identity
        if identity.attempt != plan.attempt or identity.rank not in plan.culprit_ranks:
            continue
        if not held.is_gone() and held.send(signal.SIGKILL):
            logger.warning(
                "ended rank %d (process %d) for incident %s",
                identity.rank,
                identity.pid,
                plan.incident,
            )
            ended = True
    return ended
