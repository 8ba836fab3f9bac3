"""From the plan to this node's ranks: their numbers, and what they are told."""

from __future__ import annotations

from dataclasses import replace

from torch.distributed.elastic.agent.server.api import Worker

from holdfast_sidecar.launcher.rank_environment import RankContext
from holdfast_sidecar.launcher.rendezvous import Assignment
from holdfast_sidecar.records.plan import Plan


def assign_workers(assignment: Assignment, role: str) -> list[Worker]:
    """This node's ranks as the plan numbers them, and their numbers inside their role."""
    member = assignment.member
    alike = [m for m in assignment.plan.members if m.role == role]
    before = sum(m.slots for m in alike if m.node_rank < member.node_rank)
    return [
        Worker(
            local_rank=local_rank,
            global_rank=member.first_rank + local_rank,
            role_rank=before + local_rank,
            world_size=assignment.plan.world_size,
            role_world_size=sum(m.slots for m in alike),
        )
        for local_rank in range(member.slots)
    ]


def context_for(context: RankContext, plan: Plan) -> RankContext:
    """What the ranks of this plan's attempt are told."""
    return replace(
        context,
        attempt=plan.attempt,
        epoch=plan.epoch,
        resume=tuple(plan.resume),
        skips=tuple(plan.skips),
        peer_copies=context.peer_copies if len(plan.members) > 1 else "off",
    )


def announce(assignment: Assignment, job: str) -> list[str]:
    """What people are told when an attempt starts: after a failure its cause, then the place."""
    why = assignment.plan.message
    return [*([f"restarted after: {why}"] if why else []), describe(assignment, job)]


def describe(assignment: Assignment, job: str) -> str:
    """This node's place, for people, and by which name commands know the job."""
    plan, member = assignment.plan, assignment.member
    last = member.first_rank + member.slots - 1
    resuming = f", resuming from {plan.resume[0].words}" if plan.resume else ""
    return (
        f"job {job}, attempt {plan.attempt}: node rank {member.node_rank} of {len(plan.members)}, "
        f"ranks {member.first_rank}-{last} of {plan.world_size}{resuming}"
    )
