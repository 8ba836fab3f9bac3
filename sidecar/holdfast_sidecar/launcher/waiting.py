"""What a person is told while a node waits for a place in an attempt: pure, `now` is given."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.environment import LAUNCH_ID
from holdfast_sidecar.launcher.launch_identity import differing_parts
from holdfast_sidecar.policy.blame import NO_MAJORITY
from holdfast_sidecar.policy.election import DESERTED_S
from holdfast_sidecar.policy.quarantine import bearable, checked_by_unix_s, ends_with, find
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.plan import Plan, Quarantine
from holdfast_sidecar.records.reports import AgentReport, GateVerdict

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
