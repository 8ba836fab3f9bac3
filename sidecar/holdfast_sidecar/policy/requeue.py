"""Runs whose steps nobody sees, and when a restart of theirs is over. Pure.

Their ranks have no hooks, or a loop that is neither wrapped nor has an optimizer of torch's (an
evaluation, say).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.policy.blame import agent_of
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE, PLANNED
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext, Write, amend
from holdfast_sidecar.policy.withheld import is_anyone_silent
from holdfast_sidecar.records.account import Account
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import NEVER_SEEN, TERMINAL, Incident, Member, Plan, Requeues
from holdfast_sidecar.records.reports import OF_USER, Exit

START_S = 60.0
"""From opening an attempt until its ranks can be found to stall: nodes hear of it within a
heartbeat, processes start and import torch, which from a busy file system takes a good part of a
minute; and a finding has to come round."""

NOT_BEFORE = frozenset({"restoring", "compiling"})
"""Phases that lead to a step, or end by themselves: in them nobody is done with starting."""


def wait_s(settings: StallSettings) -> float:
    """For so long all ranks have to live on after a restart of which no step is seen.

    A run may just have failed before its first step, and its steps be seen all the same: so it has
    the time that any rank has for its first step. What proves a hang by then must come first. As
    shipped these are 11 minutes, which leave 4 for ending ranks and waiting for nodes until
    HoldfastJobStuckRestarting pages.
    """
    return settings.first_step_s + START_S


def under_way(cluster: Cluster, plan: Plan) -> list[Incident]:
    """Incidents of this run for which its newest attempt was opened, and that are not over yet."""
    return [
        incident
        for incident in cluster.incidents.values()
        if incident.decided == "restart"
        and not incident.recovered_unix_s
        and incident.attempt < plan.attempt
        and incident.detected_unix_s >= plan.began_unix_s
    ]


def has_shown_steps(cluster: Cluster, plan: Plan, account: Account | None) -> bool:
    """Whether any attempt of this run made a step that was seen, or is about to: a wrapped loop has
    begun, or state was read back. account: of this run, as far as it is written.

    The account forgets an attempt that was over before its first step was split, incidents are gone
    from a store that was emptied: either one will do.
    """
    if account is not None and (account.is_training or account.has_trained):
        return True
    before = (i for i in cluster.incidents.values() if i.detected_unix_s >= plan.began_unix_s)
    if any(incident.step_reached > 0 for incident in before):
        return True
    ranks = cluster.ranks(plan).values()
    return any(rank.step or rank.resumed_step or rank.in_loop for rank in ranks)


def resumed_from(cluster: Cluster, plan: Plan) -> int:
    """Step of the state that this attempt began with; 0: with nothing."""
    known = max((rank.resumed_step for rank in cluster.ranks(plan).values()), default=0)
    return known or max((candidate.step for candidate in plan.resume), default=0)


def incidents_of_run(cluster: Cluster, plan: Plan) -> list[Incident]:
    """Those of this run: what ended an earlier one under the same name says nothing of it."""
    return [i for i in cluster.incidents.values() if i.attempt >= plan.first_attempt]


def had_stepped(cluster: Cluster, plan: Plan, exits: Iterable[Exit] = ()) -> bool:
    """Whether some attempt of this run completed a step. exits: of this attempt's ranks, whose
    sidecars may not have told of their last steps."""
    ranks = cluster.ranks(plan).values()
    if any(rank.step > rank.resumed_step for rank in ranks):
        return True
    began = resumed_from(cluster, plan)
    if any(exit_.step > began for exit_ in exits):
        return True
    return any(i.had_stepped or i.recovered_unix_s for i in incidents_of_run(cluster, plan))


def launch_had_stepped(cluster: Cluster, plan: Plan, exits: Iterable[Exit] = ()) -> bool:
    """Whether this run or one of the same launch before it did. What worked once is not the
    script's own fault in the next run: it is started again as it was."""
    before = plan.requeues
    return before.has_stepped or before.step > 0 or had_stepped(cluster, plan, exits)


def recoveries(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> tuple[Write, ...]:
    """Incidents that are over though no step tells it: all ranks have lived on for long enough."""
    waiting = under_way(cluster, plan)
    if not waiting or has_shown_steps(cluster, plan, cluster.account):
        return ()
    lived_s = circumstances.now_unix_s - max(one.reopened_unix_s for one in waiting)
    if lived_s < wait_s(circumstances.settings.stall) or not _is_at_work(cluster, plan):
        return ()
    why = f"{NEVER_SEEN}: over as every rank lived on for {lived_s:.0f} s"
    return _over(cluster, waiting, why, circumstances)


def recoveries_at_end(
    cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> tuple[Write, ...]:
    """The same when every rank has ended well, however soon."""
    if has_shown_steps(cluster, plan, cluster.account):
        return ()
    why = f"{NEVER_SEEN}: over as every rank ended well"
    return _over(cluster, under_way(cluster, plan), why, circumstances)


def _over(
    cluster: Cluster, incidents: list[Incident], why: str, circumstances: DecisionContext
) -> tuple[Write, ...]:
    now = circumstances.now_unix_s
    return tuple(
        amend(
            cluster,
            dataclasses.replace(one, recovered_unix_s=now, evidence=[*one.evidence, why]),
        )
        for one in incidents
    )


def _is_at_work(cluster: Cluster, plan: Plan) -> bool:
    """Every rank lives, and none is known to stand still or to be starting, whether that would be
    acted on or not. Without hooks there is only their launchers' word."""
    if not all(_runs(cluster, plan, member) for member in plan.members):
        return False
    ranks = cluster.ranks(plan)
    if len(ranks) not in (0, plan.world_size):
        return False  # some of them are still on their way
    lives = all(rank.alive or rank.has_left for rank in ranks.values())
    starts = any(rank.phase in NOT_BEFORE for rank in ranks.values())
    return lives and not starts and not is_anyone_silent(cluster, plan)


def _runs(cluster: Cluster, plan: Plan, member: Member) -> bool:
    agent = agent_of(cluster, member)
    if agent is None or agent.attempt != plan.attempt:
        return False
    return agent.state in ("running", "succeeded")


# How often a job may ask to be started again, counted over the runs of one launch. Pure.
#
# Whoever requeues on 75 does so for ever: a job that never comes further must say 65 at last. The
# count goes from run to run in the plan, and on disk where the server did not outlive the job.


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


def limited(write: Write, cluster: Cluster, circumstances: DecisionContext) -> Write:
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


def _one_more(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Requeues:
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


def _has_worked_unseen(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> bool:
    """Whether this run, whose steps nobody sees, lived for long: then it may well have come on."""
    lived_s = circumstances.now_unix_s - plan.began_unix_s if plan.began_unix_s else 0.0
    is_unseen = not has_shown_steps(cluster, plan, cluster.account)
    return is_unseen and lived_s >= wait_s(circumstances.settings.stall)
