"""What the leader's plan means for this node's agent: pure, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast.environment import LAUNCH_ID
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.launcher.launch_identity import differing_parts
from holdfast_sidecar.policy.quarantine import find
from holdfast_sidecar.records.plan import TERMINAL, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, GateVerdict

LIVE = ("running", "evidence")


class Standing(Enum):
    """What an agent has to do now."""

    WAIT = "wait"  # nothing new: keep waiting, or keep running
    RUN = "run"  # take part in the plan's attempt
    END = "end"  # end the ranks and join again
    DONE = "done"  # every rank of the job ended well: leave
    STOPPED = "stopped"  # end the ranks and leave with the plan's exit code


EXIT_BARRIER_S = 300.0
"""As torchrun's exit barrier."""


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


class ExitBarrier:
    """How long a node without living ranks waits for a word that nobody is there to say."""

    def __init__(self) -> None:
        self._watch = Stopwatch()

    def is_over(self, why_unled: str, now: float, after_s: float = EXIT_BARRIER_S) -> bool:
        """Whether nobody has led for so long, without a break, that the node leaves. `why_unled`:
        empty while somebody leads."""
        unled_s = self._watch.elapsed("unled", "unled" if why_unled else "", now)
        return bool(why_unled) and unled_s >= after_s


def all_live(plan: Plan, before: Mapping[str, AgentReport], now: Mapping[str, AgentReport]) -> bool:
    """Whether every member's launcher was heard between these two readings of the agents."""
    return all(
        (then := before.get(member.node)) is not None
        and (since := now.get(member.node)) is not None
        and then.incarnation == since.incarnation == member.incarnation
        and then.beat != since.beat
        for member in plan.members
    )


def why_not_admitted(
    job: str, plan: Plan, own: AgentReport, agents: Mapping[str, AgentReport]
) -> str:
    """Why a launcher that never had a place has none to wait for, while all members of a live
    attempt live; empty: it may wait."""
    members = [agents[member.node] for member in plan.members]
    names = ", ".join(member.node for member in members)
    launches = sorted({member.launch for member in members})
    if members and own.launch not in launches:
        return (
            f"job {job} is run by another launch ({', '.join(launches)}, on {names}; this one is "
            f"{own.launch}): choose another --job, end that one first, or, if they are the same, "
            f"give all nodes one {LAUNCH_ID} in their environment"
        )
    if own.spares == 0 and len(members) >= own.max_nodes:
        return (
            f"job {job} runs already with all its nodes ({names}): choose another --job, "
            "or give all of them --spares for nodes that wait beside it"
        )
    if members and all(own.launch_key != member.launch_key for member in members):
        return (
            f"job {job} runs another command (on {names}; here differs: "
            f"{differing_parts(own, members)}): choose another --job, end that one first "
            f"(holdfast stop --job {job}), or, where nodes of one launch rightly differ in it, "
            f"give all of them one {LAUNCH_ID} in their environment"
        )
    return ""


def may_leave_unused(plan: Plan, own: AgentReport, agents: Mapping[str, AgentReport]) -> bool:
    """Whether a launcher without any place so far may be content with the job's end: a spare, who
    came in the place of a member's launcher that had died, and a node of the same launch that the
    job did without. Not another launch, which would seem to have run; nor one too many."""
    if own.spares > 0 or any(member.node == own.node for member in plan.members):
        return True
    is_wanted = len(plan.members) < own.max_nodes or find(own, plan.outside) is not None
    return is_wanted and _is_of_its_launch(plan, own, agents)


def _is_of_its_launch(plan: Plan, own: AgentReport, agents: Mapping[str, AgentReport]) -> bool:
    inside = [
        agent
        for member in plan.members
        if (agent := agents.get(member.node)) is not None
        and agent.incarnation == member.incarnation
    ]
    if inside:
        return all(agent.launch_key == own.launch_key for agent in inside)
    # The server may have gone with the job; the plan that was read names the launch.
    of_run = plan.requeues
    is_command = own.has_launch_id or own.launch_command == of_run.command
    return of_run.launch != "" and of_run.launch == own.launch and is_command


def why_unused(plan: Plan, own: AgentReport, verdict: GateVerdict | None) -> str:
    """Why the job did without this node. verdict: of its gate, where that finds it unfit."""
    if (kept_out := find(own, plan.outside)) is not None:
        return f"it was kept outside: {'; '.join(kept_out.evidence[:1])}"
    if verdict is not None:
        return f"its health gate found it unfit: {'; '.join(verdict.reasons) or 'no reason given'}"
    return "it came when the last attempt was under way"
