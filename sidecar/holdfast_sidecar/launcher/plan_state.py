"""What the leader's plan means for this node's agent: pure, no clock, no I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from holdfast.contract.environment import LAUNCH_ID
from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.launcher.ownership import differing_parts
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.policy.blame import NO_MAJORITY
from holdfast_sidecar.policy.election import DESERTED_S
from holdfast_sidecar.policy.quarantine import bearable, checked_by_unix_s, ends_with, find
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.plan import TERMINAL, Member, Plan, Quarantine
from holdfast_sidecar.records.reports import AgentReport, GateVerdict

LIVE = ("running", "evidence")


class AttemptState(Enum):
    """What an agent has to do now."""

    WAIT = "wait"  # nothing new: keep waiting, or keep running
    RUN = "run"  # take part in the plan's attempt
    END = "end"  # end the ranks and join again
    DONE = "done"  # every rank of the job ended well: leave
    STOPPED = "stopped"  # end the ranks and leave with the plan's exit code


EXIT_BARRIER_S = 300.0
"""As torchrun's exit barrier."""


@dataclass(frozen=True)
class PlanFence:
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


def while_joining(
    plan: Plan | None, incarnation: str, known: int, fence: PlanFence
) -> AttemptState:
    """Standing of an agent without ranks. `known`: newest attempt whose end it knows of."""
    if plan is None or fence.refuses(plan):
        return AttemptState.WAIT
    is_member = seat(plan, incarnation) is not None
    if plan.state in TERMINAL and (is_member or plan.attempt > known):
        return AttemptState(plan.state)
    if plan.state == "running" and is_member and plan.attempt > known:
        return AttemptState.RUN
    return AttemptState.WAIT


def while_running(plan: Plan | None, attempt: int, fence: PlanFence) -> AttemptState:
    """Standing of an agent whose ranks run, or ran, `attempt`."""
    if plan is None or fence.refuses(plan):
        return AttemptState.WAIT
    if plan.state in TERMINAL:
        return AttemptState(plan.state)
    if plan.attempt > attempt or plan.state == "ended":
        return AttemptState.END
    return AttemptState.WAIT


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


# What a person is told while a node waits for a place in an attempt: pure, `now` is given.

FIRST_S = 3.0
"""Nodes that are started together meet sooner than this; whoever waits longer wonders why."""

EVERY_S = 30.0
"""Often enough to see that the wait goes on, too seldom to bury what was said before."""


@dataclass
class WaitingWords:
    """When there is something to say, while one wait lasts."""

    since: float
    _last: str = ""
    _last_at: float = -math.inf
    _said: set[str] = field(default_factory=set)

    def is_due(self, now: float) -> bool:
        """Whether it is time to look at who is here."""
        return now - self.since >= FIRST_S and now - self._last_at >= EVERY_S

    def is_unsaid(self, line: str) -> bool:
        """Whether there is such a line, and it was not said during this wait."""
        return bool(line) and line not in self._said

    def say(self, line: str, now: float, repeats: bool) -> str | None:
        """The line, if it shall be said now; one that doesn't repeat is said when it is new."""
        self._last_at = now
        is_new, self._last = line != self._last, line
        self._said.add(line)
        return line if is_new or repeats else None


def as_unfit(verdict: GateVerdict) -> str:
    """The wait of a node that the leader does not take in."""
    why = "; ".join(verdict.reasons) or "no reason is given"
    return f"this node is not taken in, its health gate finds it unfit: {why} (holdfast nodes)"


def for_an_attempt(
    own: AgentReport,
    agents: Iterable[AgentReport],
    left_s: float,
    unfit: Mapping[str, GateVerdict] | None = None,
    outside: Sequence[Quarantine] = (),
) -> str:
    """Who is here and who is waited for, while no attempt is live. unfit: node -> why it may not
    come in. outside: who is kept outside by the plan."""
    unfit, agents = unfit or {}, list(agents)
    joining = (agent for agent in agents if agent.state == "joining")
    here = {a.node: a for a in joining if a.launch_key == own.launch_key} | {own.node: own}
    fit = [agent for node, agent in here.items() if node not in unfit]
    kept = bearable(outside, fit, own.min_nodes)
    kept_out = {agent.node: one for agent in fit if (one := find(agent, kept)) is not None}
    told = _who_is_here(own, sorted(here), left_s, unfit, kept_out) + strangers(own, agents)
    if own.node in unfit:
        return f"{as_unfit(unfit[own.node])}; {told}"
    return f"{as_kept_out(kept_out[own.node])}; {told}" if own.node in kept_out else told


def strangers(own: AgentReport, agents: Iterable[AgentReport]) -> str:
    """Who waits under the job's name for another launch, to be set behind other words."""
    others = [a for a in agents if a.state == "joining" and a.launch_key != own.launch_key]
    if not others:
        return ""
    is_command = all(agent.launch == own.launch for agent in others)
    what = f"command, which differs in: {differing_parts(own, others)}" if is_command else "launch"
    names = ", ".join(sorted(agent.node for agent in others))
    return (
        f"; not with {names}, of another {what} (choose another --job, or, if they belong "
        f"together, give all of them one {LAUNCH_ID} in their environment)"
    )


def _who_is_here(
    own: AgentReport,
    here: Sequence[str],
    left_s: float,
    unfit: Mapping[str, GateVerdict],
    kept_out: Mapping[str, Quarantine],
) -> str:
    names = ", ".join(here)
    least, most = own.min_nodes, own.max_nodes
    able = [node for node in here if node not in unfit and node not in kept_out]
    if len(able) < least <= len(here):
        may = f"{len(able)} of the {len(here)} nodes that are here may come in, {least} are needed"
        ill = [_why(node, unfit[node].reasons) for node in here if node in unfit]
        away = [_why(node, kept_out[node].evidence) for node in here if node in kept_out]
        told = f"; unfit: {', '.join(ill)}" * bool(ill)
        told += f"; kept outside: {', '.join(away)}" * bool(away)
        return f"waiting for nodes: {may}{told}; {_up_to(left_s)}"
    if len(here) < least:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        are = "is" if len(here) == 1 else "are"
        missing = f"{len(here)} of {wanted} {are} here ({names})"
        return f"waiting for nodes: {missing}; {_up_to(left_s)}"
    return f"waiting for the job's leader: enough nodes are here, {len(here)} of {most} ({names})"


def _why(node: str, reasons: Sequence[str]) -> str:
    return f"{node} ({'; '.join(reasons[:1])})"


def as_kept_out(kept_out: Quarantine) -> str:
    """The wait of a node that the plan does without."""
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(kept_out.until_unix_s))
    why = "; ".join(kept_out.evidence[:1])
    first = checked_by_unix_s(kept_out)
    mended = ends_with(kept_out, first)
    if kept_out.remedy == Remedy.RESET_GPU.value:
        mended += f" (checked by {time.strftime('%H:%M:%S', time.localtime(first))})"
    sooner = f"until {mended}, at the latest " if mended else ""
    return (
        f"this node is kept outside {sooner}until {until}: {why} "
        f"(holdfast node return {kept_out.node} lets it in)"
    )


def beside(
    plan: Plan,
    own: AgentReport,
    verdict: GateVerdict | None = None,
    leader_waits: str = "",
    job: str = "",
) -> str:
    """The wait beside a live attempt: as a spare, or because this node is kept outside. verdict: of
    its gate, where that finds it unfit. leader_waits: what the leader of this job waits for."""
    kept_out = find(own, plan.outside)
    if kept_out is not None:
        return as_kept_out(kept_out)
    if verdict is not None:
        return as_unfit(verdict)
    if NO_MAJORITY in leader_waits:
        return as_newcomer(plan, leader_waits, job)
    return as_spare(plan) if own.spares else as_late(plan)


def as_newcomer(plan: Plan, leader_waits: str, job: str) -> str:
    """The wait beside an attempt whose nodes may live where nobody here hears them, or be dead."""
    nodes = ", ".join(member.node for member in plan.members)
    return (
        f"waiting: attempt {plan.attempt} ran on {nodes}; {leader_waits}. If none of them is heard "
        f"of for {DESERTED_S:.0f} s, and Slurm has started this very job again, enough newcomers "
        f"start without them; if they are known to be dead, holdfast stop --job {job} and another "
        "launch do so at once"
    )


def as_spare(plan: Plan) -> str:
    """The wait beside a live attempt, which lasts as long as that."""
    nodes = ", ".join(member.node for member in plan.members)
    return f"waiting as a spare: attempt {plan.attempt} runs on {nodes}"


def as_late(plan: Plan) -> str:
    """The same where no spare was asked for: a place may become free, or room be made."""
    nodes = ", ".join(member.node for member in plan.members)
    return f"waiting for a place: attempt {plan.attempt} runs on {nodes}"


def _up_to(left_s: float) -> str:
    return f"up to {how_long(left_s)}"


def how_long(seconds: float) -> str:
    """Whole minutes, rounded up; seconds when they are fewer than 60."""
    whole = max(1, math.ceil(seconds))
    return f"{whole} s" if whole < 60 else f"{math.ceil(whole / 60)} min"


# Whether the leader should wait for what this node's sidecar says of it before taking it in.

DRIVERS = ("nvidiactl", "dxg")
"""What NVIDIA's driver leaves in /dev where there is one (the second under WSL)."""

OWN = Path("/dev")
"""Containers that may use a GPU see it here, whatever they see of their host elsewhere."""


def awaits_gate(settings: GateSettings, has_sidecar: bool, machine_root: str) -> bool:
    """Without a GPU nothing is worth a wait, unless somebody set what is to be waited for: what is
    wrong with a CPU's node mostly was so before, and its verdict is there by the next attempt."""
    is_wished = settings.expected_gpus > 0 or settings.test_after_blame
    return has_sidecar and (is_wished or _has_driver(OWN, KernelTrees(machine_root).dev))


def _has_driver(*places: Path) -> bool:
    return any((place / name).exists() for place in places for name in DRIVERS)
