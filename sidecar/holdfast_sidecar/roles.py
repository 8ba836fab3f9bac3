"""What part ranks have in the job, as torchrun's --role says: a rank is slow beside its own kind.

All ranks of a node have the role of its launcher; nothing is known of coordinates within a role.
"""

from __future__ import annotations

from holdfast_sidecar.records.plan import Plan


def read_roles(plan: Plan | None, attempt: int) -> dict[int, str]:
    """rank -> its role in this attempt; empty where all have the same, or the plan is another's."""
    if plan is None or plan.attempt != attempt:
        return {}
    if len({member.role for member in plan.members}) < 2:
        return {}
    return {rank: member.role for member in plan.members for rank in member.ranks}
