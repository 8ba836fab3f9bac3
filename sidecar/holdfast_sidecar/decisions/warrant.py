"""Whether a rank of this node may be ended now that lives: everything that must be so before."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from holdfast.permit import Handle, Licence, NotPermitted, Permit
from holdfast_sidecar.decisions.hardware import OF_HARDWARE
from holdfast_sidecar.store.orders import Orders

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
    is_evidence_given_up: bool = False
    """Whether this node's own can't be kept: its disk takes nothing, or the time for it is over."""


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
    if warrant.evidence_for != plan.incident and not warrant.is_evidence_given_up:
        return "the evidence is not on disk yet"
    if not warrant.everyone_kept:
        return "other nodes are still keeping evidence, which dies with the culprit's peers"
    return ""


def warranted(
    orders: Orders, warrant: Warrant, attempt: int, rank: int, pidfd: int | None
) -> Permit:
    """To kill this rank of an attempt, which is held open. Raises NotPermitted.

    Only in the plan's own attempt: a sidecar that slept between check and act harms nobody.
    """
    if refused := refusal(orders, warrant):
        raise NotPermitted(refused)
    plan = orders.plan
    if plan is None or attempt != plan.attempt or rank not in plan.culprit_ranks:
        raise NotPermitted(f"rank {rank} of attempt {attempt} is no culprit")
    if pidfd is None:
        raise NotPermitted(f"the process of rank {rank} can't be reached")
    proof = f"{plan.cause}, incident {plan.incident}"
    return Permit(Licence.OWN_RANK, Handle(pidfd, signal.SIGKILL), proof)
