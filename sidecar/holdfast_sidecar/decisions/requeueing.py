"""How often a job may ask to be started again, counted over the runs of one launch. Pure.

Whoever requeues on 75 does so for ever: a job that never comes further must say 65 at last. The
count goes from run to run in the plan, and on disk where the server did not outlive the job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.outcome import Circumstances, Write
from holdfast_sidecar.decisions.restart import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE, PLANNED
from holdfast_sidecar.decisions.unseen_steps import (
    had_stepped,
    has_shown_steps,
    incidents_of_run,
    launch_had_stepped,
    wait_s,
)
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import TERMINAL, Member, Plan, Requeues
from holdfast_sidecar.records.reports import OF_USER


def carried(cluster: Cluster, members: Iterable[Member], recalled: Requeues) -> Requeues:
    """What a new run of these members goes on from. recalled: what this node's disk has of it.

    An end that did not ask for another start closes the count, and so does another launch: another
    id, or, where only the user names it, another command.
    """
    agents = (a for m in members if (a := cluster.agents.get(m.node)) is not None)
    first = next(agents, None)
    new = (
        Requeues() if first is None else Requeues(launch=first.launch, command=first.launch_command)
    )
    before = Requeues() if cluster.plan is None else going_on(cluster.plan)
    known = [one for one in (before, recalled) if _is_of_one_launch(one, new)]
    counted = max((one for one in known if one.count), key=lambda one: one.count, default=new)
    has_stepped = any(one.has_stepped for one in known)
    return dataclasses.replace(counted, command=new.command, has_stepped=has_stepped)


def _is_of_one_launch(one: Requeues, new: Requeues) -> bool:
    is_command = not new.launch.startswith(OF_USER) or one.command == new.command
    return one.launch == new.launch and is_command


def going_on(plan: Plan) -> Requeues:
    """The count as this plan leaves it to the next run. A run that was killed goes on where an id
    says so; of a user's launches only one that asked to be started again is."""
    is_open = plan.exit_code == EXIT_REQUEUE
    if plan.state not in TERMINAL:
        is_open = not plan.requeues.launch.startswith(OF_USER)
    return plan.requeues if is_open else Requeues()


def limited(write: Write, cluster: Cluster, circumstances: Circumstances) -> Write:
    """The plan to be written, counted where it ends the job with 75, and ending it with 65 where
    that was so too often."""
    limit = circumstances.settings.policy.requeue_limit
    plan = decode(Plan, write.value or "")
    if plan is None or (plan.state, plan.exit_code) != ("stopped", EXIT_REQUEUE):
        return write
    counted = dataclasses.replace(plan, requeues=_one_more(cluster, plan, circumstances))
    if counted.requeues.count > limit and plan.cause not in PLANNED:
        why = f"{limit} times before it was started again, and came no further: it is not again"
        message = f"{plan.message}; {why}" if plan.message else why
        counted = dataclasses.replace(counted, exit_code=EXIT_DO_NOT_REQUEUE, message=message)
    return dataclasses.replace(write, value=encode(counted))


def _one_more(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Requeues:
    stepped = launch_had_stepped(cluster, plan)
    before = dataclasses.replace(plan.requeues, has_stepped=stepped)
    furthest = _furthest(cluster, plan)
    if had_stepped(cluster, plan) and furthest > before.step:
        return dataclasses.replace(before, count=0, step=furthest)
    if _has_worked_unseen(cluster, plan, circumstances):
        return dataclasses.replace(before, count=0)
    # Whoever takes the nodes back says nothing of the job: it was no try, neither in vain nor not.
    is_planned = plan.cause in PLANNED
    return before if is_planned else dataclasses.replace(before, count=before.count + 1)


def _furthest(cluster: Cluster, plan: Plan) -> int:
    ranks, incidents = cluster.ranks(plan).values(), incidents_of_run(cluster, plan)
    return max((*(r.step for r in ranks), *(i.step_reached for i in incidents)), default=0)


def _has_worked_unseen(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> bool:
    """Whether this run, whose steps nobody sees, lived for long: then it may well have come on."""
    lived_s = circumstances.now_unix_s - plan.began_unix_s if plan.began_unix_s else 0.0
    is_unseen = not has_shown_steps(cluster, plan, cluster.account)
    return is_unseen and lived_s >= wait_s(circumstances.settings.stall)
