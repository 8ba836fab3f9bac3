"""How a job goes on after a failure: restart in place, without the node, further back, or stop.

Each rung is taken only when the one below has not helped: a node goes when it alone is blamed again
and again, state when attempts that resume from it die without a new step. Only of hardware that is
known to be ill nobody waits to see it fail again.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.decisions import restart
from holdfast_sidecar.decisions.choosing import is_about_numbers
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.keeping_out import (
    Way,
    as_asked,
    noted,
    without_ill,
    without_lemon,
    without_others,
    without_slow,
)
from holdfast_sidecar.decisions.lemon import WITHOUT_NODE, ran_out_of_memory
from holdfast_sidecar.decisions.pausing import RESTART
from holdfast_sidecar.decisions.preemption import is_asked
from holdfast_sidecar.decisions.replacing import STRAGGLER
from holdfast_sidecar.decisions.unseen_steps import incidents_of_run, resumed_from
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import OUTPUT_UNREAD

ROLL_BACK = "roll_back"

OF_STATE = frozenset({"crash", "hang", "stall"})
"""Causes that the state which was resumed from may have."""

JITTER = 0.25
"""Part of a pause by which jobs differ that failed together (a switch, a file system), so that they
don't come back together, too."""


def find_way(
    cluster: Cluster,
    plan: Plan,
    incident: Incident,
    settings: Settings,
    cap: int,
    now_unix_s: float,
) -> Way | restart.Stop:
    """The lowest rung that may help. `cap`: see `restart.decide`."""
    policy = settings.policy
    if incident.cause == STRAGGLER:
        # Its budget was asked before the attempt was ended: nobody stops a job because it is slow.
        way = Way(incident, 0.0, list(plan.outside))
        return without_slow(way, cluster, settings, now_unix_s)
    if incident.signature.startswith(OUTPUT_UNREAD):
        # Who takes the nodes back may have ended what reads the output before the job was saved.
        code = restart.EXIT_REQUEUE if is_asked(cluster) else restart.EXIT_FAILED
        return restart.Stop(code, f"{OUTPUT_UNREAD}: started again it would end in the same way")
    earlier = [i for i in cluster.incidents.values() if i.identifier != incident.identifier]
    of_run = [i for i in incidents_of_run(cluster, plan) if i.identifier != incident.identifier]
    verdict = restart.decide(incident, of_run, plan.restarts, cap, policy, now_unix_s)
    if isinstance(verdict, restart.Stop):
        return verdict
    pause_s = jittered(verdict.pause_s, incident.identifier)
    way = Way(incident, pause_s, list(plan.outside), verdict.why)
    if incident.cause == RESTART:
        return as_asked(way, cluster, now_unix_s, policy)
    if incident.cause in restart.PLANNED:
        return way
    if incident.remedy:
        ill = without_ill(way, cluster, settings, earlier, now_unix_s)
        if isinstance(ill, restart.Stop):
            return ill
        way = ill
    else:
        way = without_lemon(way, cluster, settings, earlier, now_unix_s)
    way = without_others(way, cluster, plan, settings, now_unix_s)
    if way.incident.escalation == WITHOUT_NODE:
        return way
    return _further_back(way, cluster, plan, of_run, policy)


def jittered(pause_s: float, identifier: str) -> float:
    """The pause, longer by up to a quarter: the same each time the same incident is judged."""
    return pause_s * (1 + JITTER * zlib.crc32(identifier.encode()) / 2**32)


def is_stuck(incident: Incident, earlier: Sequence[Incident], limit: int) -> bool:
    """Whether the last failures came without a step that had not been made before.

    What was rolled back begins anew: its steps are made again on purpose.
    """
    row = [incident]
    if is_about_numbers(incident):
        return False
    for one in sorted(earlier, key=lambda one: one.attempt, reverse=True):
        if one.cause in restart.PLANNED or one.decided != "restart":
            continue
        if is_about_numbers(one) or len(row) == limit:
            break
        row.append(one)
    is_suspect = all(
        i.cause in OF_STATE and not ran_out_of_memory(i) and not i.is_of_surroundings for i in row
    )
    first = row[-1]
    return (
        is_suspect
        and len(row) == limit
        and all(one.step_reached <= first.step_reached for one in row)
    )


def _further_back(
    way: Way, cluster: Cluster, plan: Plan, earlier: Sequence[Incident], policy: PolicySettings
) -> Way | restart.Stop:
    """Behind the state that was resumed from, once; when that does not help either, stop."""
    incident = way.incident
    if not is_stuck(incident, earlier, policy.stuck_limit):
        return way
    words = f"{policy.stuck_limit} failures in a row, and no attempt came past step"
    gone_back = [i for i in earlier if i.escalation == ROLL_BACK]
    if any(one.step_reached >= incident.step_reached for one in gone_back):
        return restart.Stop(
            restart.EXIT_DO_NOT_REQUEUE,
            f"{words} {incident.step_reached}, though the job had gone back further",
        )
    resumed = resumed_from(cluster, plan)
    good = [e.step for e in cluster.ledger.values() if e.verdict == "good" and e.step < resumed]
    if not good:
        return way
    told = f"{words} {incident.step_reached}: back behind step {resumed}, from which they resumed"
    distrusting = dataclasses.replace(incident, escalation=ROLL_BACK, distrusts_from=resumed)
    return noted(dataclasses.replace(way, incident=distrusting), told)
