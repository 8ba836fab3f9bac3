"""What the leader's plan means for this node's agent: pure, no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.records.plan import TERMINAL, Member, Plan

LIVE = ("running", "evidence")


class Standing(Enum):
    """What an agent has to do now."""

    WAIT = "wait"  # nothing new: keep waiting, or keep running
    RUN = "run"  # take part in the plan's attempt
    END = "end"  # end the ranks and join again
    DONE = "done"  # every rank of the job ended well: leave
    STOPPED = "stopped"  # end the ranks and leave with the plan's exit code


@dataclass(frozen=True)
class Fence:
    """The attempt and leader epoch of the newest plan that was obeyed."""

    attempt: int = -1
    epoch: int = -1

    def refuses(self, plan: Plan) -> bool:
        """Whether the plan is older than what was obeyed: a server that lost writes shows such."""
        return plan.attempt < self.attempt or plan.epoch < self.epoch


def seat(plan: Plan, incarnation: str) -> Member | None:
    """This launcher's place in the plan; an earlier launcher of the same node is someone else."""
    return next((m for m in plan.members if m.incarnation == incarnation), None)


def known_end(plan: Plan | None, incarnation: str) -> int:
    """Newest attempt whose end a starting agent knows of: that of a run that was already over."""
    if plan is None or plan.state not in TERMINAL or seat(plan, incarnation) is not None:
        return -1
    return plan.attempt


def while_joining(plan: Plan | None, incarnation: str, known: int, fence: Fence) -> Standing:
    """Standing of an agent without ranks. `known`: newest attempt whose end it knows of."""
    if plan is None or fence.refuses(plan):
        return Standing.WAIT
    is_member = seat(plan, incarnation) is not None
    if plan.state in TERMINAL and (is_member or plan.attempt > known):
        return Standing(plan.state)
    if plan.state == "running" and is_member and plan.attempt > known:
        return Standing.RUN
    return Standing.WAIT


def while_running(plan: Plan | None, attempt: int, fence: Fence) -> Standing:
    """Standing of an agent whose ranks run, or ran, `attempt`."""
    if plan is None or fence.refuses(plan):
        return Standing.WAIT
    if plan.state in TERMINAL:
        return Standing(plan.state)
    if plan.attempt > attempt or plan.state == "ended":
        return Standing.END
    return Standing.WAIT
