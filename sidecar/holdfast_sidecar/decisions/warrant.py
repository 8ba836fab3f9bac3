"""Whether a rank of this node may be ended now that lives: everything that must be so before."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.decisions.hardware import OF_HARDWARE
from holdfast_sidecar.local_state import Orders

HANGS = frozenset({"hang", "stall", "data_stall"})
"""Causes whose culprit still lives and stands still."""

ENDED_BY_US = HANGS | OF_HARDWARE
"""Causes of a plan whose culprit still lives and has to be ended: a rank whose GPU is gone waits in
the driver and hears no other signal. Crashed ranks and lost nodes need none; where hardware turns
out to be to blame for a crash, the incident says so and the plan does not."""


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
    if plan is None or plan.state not in ("evidence", "ended") or plan.cause not in ENDED_BY_US:
        return "nothing is being dealt with for which a rank is ended"
    if plan.culprit_node != warrant.node or not plan.culprit_ranks:
        return "the culprit is not on this node"
    if plan.pause is not None:
        return "the job is paused"
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
