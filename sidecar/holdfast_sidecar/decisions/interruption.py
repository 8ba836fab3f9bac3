"""A job that somebody ends by its launchers, all at once: Ctrl-C, or a scheduler. Pure.

Its ranks die on one node before the other has heard of it, so that the one who only lost a peer
looks like a crash. Nobody is left to recover, and what was opened for it is closed.
"""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.decisions.accusation import BY_ORDER
from holdfast_sidecar.decisions.blame import ABORTED, OF_A_MISMATCH, VICTIM, speaks_of_peer
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.signature import OF_WHOM
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import OUTPUT_UNREAD

STOP = "stop"
"""Cause of what such an end left open, and what was decided about it."""

TOLD = "the launchers of all its nodes were told to end"


def is_interrupted(cluster: Cluster, plan: Plan) -> bool:
    """Whether every launcher of the attempt was told to end, and nobody waits to go on without."""
    agents = [(cluster.agents.get(member.node), member) for member in plan.members]
    are_told = all(
        agent is not None and agent.incarnation == member.incarnation and agent.leaves
        for agent, member in agents
    )
    return bool(agents) and are_told and not cluster.willing()


def closed(incident: Incident) -> Incident:
    """The incident, over with the job. A fault that was there before stays what it was."""
    if not _comes_of_it(incident):
        return dataclasses.replace(incident, decided=STOP)
    return dataclasses.replace(
        incident,
        cause=STOP,
        culprit_node="",
        culprit_ranks=[],
        culprit_part="",
        confidence=0.95,
        signature="",
        is_of_script=False,
        decided=STOP,
        evidence=[TOLD, *incident.evidence],
    )


def _comes_of_it(incident: Incident) -> bool:
    if incident.cause != "crash":
        return incident.cause == "node_left"
    if not incident.evidence or BY_ORDER.search(" ".join(incident.evidence)):
        return True
    if incident.signature.startswith(OUTPUT_UNREAD):
        return True  # what printed it was ended by the same hand
    # Not by sureness alone: the same error of their own makes ranks less sure each, and no victims.
    return incident.confidence <= VICTIM and any(map(_is_of_victim, incident.evidence))


def _is_of_victim(reason: str) -> bool:
    if OF_A_MISMATCH.search(reason):
        return False
    return ABORTED in reason or speaks_of_peer(OF_WHOM.sub("", reason))
