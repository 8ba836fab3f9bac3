"""Nodes that a person takes out of a job, and lets in again.

A drain is the person's own word: it is not lifted for want of nodes, as a quarantine is. It takes
effect when an attempt is opened, and what runs there now runs on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.decisions.quarantine import add, let_in, part_of
from holdfast_sidecar.records.plan import Plan, Quarantine, Request
from holdfast_sidecar.records.reports import AgentReport

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


def as_asked(
    outside: Iterable[Quarantine], requests: Iterable[Request], agents: Iterable[AgentReport]
) -> list[Quarantine]:
    """As was asked for since, and is not in any plan yet: with those that are drained, and without
    those that were returned."""
    kept, agents = list(outside), list(agents)
    for request in sorted(requests, key=lambda one: (one.at_unix_s, one.identifier)):
        if request.kind == RETURN and not request.refused:
            kept = let_in(kept, request.node)
        if request.kind == DRAIN and not request.refused:
            new = drained(request, agents)
            kept = kept if new is None else add(kept, new)
    return kept


def changed(plan: Plan, request: Request, agents: Iterable[AgentReport]) -> Plan:
    """The plan as this request wants it."""
    return dataclasses.replace(plan, outside=as_asked(plan.outside, [request], agents))
