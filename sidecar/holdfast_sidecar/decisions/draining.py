"""Nodes that a person takes out of a job, and lets in again.

A drain is the person's own word: it is not lifted for want of nodes, as a quarantine is. It takes
effect when an attempt is opened, and what runs there now runs on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.coordination.reports import AgentReport, Plan, Quarantine, Request
from holdfast_sidecar.decisions.quarantine import add, let_in, part_of

DRAIN, RETURN = "drain", "return"
"""Kinds of request."""

KINDS = frozenset({DRAIN, RETURN})


def drained(request: Request, agents: Iterable[AgentReport]) -> Quarantine | None:
    """What a request for a drain asks for; None where nobody knows the node."""
    agents = list(agents)
    agent = next((agent for agent in agents if agent.node == request.node), None)
    if agent is None:
        return None
    return Quarantine(
        part_of(agent, agents),
        agent.node,
        request.at_unix_s,
        request.at_unix_s + request.for_s,
        [f"drained by {request.by}{': ' if request.reason else ''}{request.reason}"],
        request.by,
        is_drained=True,
    )


def with_drains(
    outside: Iterable[Quarantine], requests: Iterable[Request], agents: Iterable[AgentReport]
) -> list[Quarantine]:
    """With those that were asked for, too, and are not in any plan yet."""
    kept, agents = list(outside), list(agents)
    for request in requests:
        if request.kind == DRAIN and not request.refused:
            new = drained(request, agents)
            kept = kept if new is None else add(kept, new)
    return kept


def changed(plan: Plan, request: Request, agents: Iterable[AgentReport]) -> Plan:
    """The plan as this request wants it."""
    if request.kind == RETURN:
        return dataclasses.replace(plan, outside=let_in(plan.outside, request.node))
    return dataclasses.replace(plan, outside=with_drains(plan.outside, [request], agents))
