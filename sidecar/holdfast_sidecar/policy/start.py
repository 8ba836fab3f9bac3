"""A run's first attempt, and the opening of any."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.policy import budget, formation
from holdfast_sidecar.policy.blame import how_lost
from holdfast_sidecar.policy.checkpoint_choice import choose, find_snapshot, trusted_below
from holdfast_sidecar.policy.cluster import (
    ANY_GROUP,
    UNRESPONSIVE_FACTOR,
    Cluster,
    Heartbeats,
    StepBegins,
    Steps,
    beats,
)
from holdfast_sidecar.policy.formation import awaits_words, with_unfit
from holdfast_sidecar.policy.numbers import add_skip, describe_skip
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    Write,
    amend,
    stopped_over,
    write_plan,
)
from holdfast_sidecar.policy.quarantine import bearable, is_kept_out, lasting
from holdfast_sidecar.policy.requeue import carried
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import STORY, TERMINAL, Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, LifeSign, NodeReport, RankReport
from holdfast_sidecar.records.steps import parse_groups

EXIT_BAD_INPUT = 2


def is_fresh(cluster: Cluster, plan_seen: Plan | None) -> bool:
    """Nobody has ever heard of an attempt, so no plan can have been lost: start at once."""
    return (
        plan_seen is None
        and all(node.floor_attempt < 0 for node in cluster.nodes.values())
        and all(agent.attempt < 0 and not agent.plan for agent in cluster.agents.values())
    )


def given_back(cluster: Cluster, circumstances: DecisionContext) -> Decision | None:
    """A plan that the store lost, as it was; None: it has lost none.

    Nothing is decided anew, so nothing of it is counted again.
    """
    if cluster.plan is not None:
        later = _superseding(cluster, cluster.plan, circumstances)
        return None if later is None else write_plan(cluster, later)
    if not circumstances.settled:
        return Decision(waiting="waiting for every node's report")
    plans = _known_plans(cluster, circumstances)
    if not plans:
        return None
    newest = max(plans, key=lambda plan: (plan.attempt, plan.epoch))
    if (slow := _slow_to_report(cluster, newest)) and not circumstances.out_of_patience:
        return Decision(waiting=f"waiting for the launchers of {', '.join(slow)} to report")
    return write_plan(cluster, newest)


def _slow_to_report(cluster: Cluster, plan: Plan) -> list[str]:
    """Members whose launcher lives, as its sidecar says, and has not been heard since the store
    was emptied: under the plan they would count as lost."""
    return sorted(
        member.node
        for member in plan.members
        if member.node not in cluster.agents
        and (node := cluster.nodes.get(member.node)) is not None
        and node.launcher_alive
    )


def _superseding(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Plan | None:
    """A plan that was obeyed after this one: the store lost it in a failover, and all who obeyed
    it refuse this one, or have ended their ranks for it. None when there is none, as is usual."""
    later = [
        known
        for known in _known_plans(cluster, circumstances)
        if known.epoch >= plan.epoch and _place(known) > _place(plan)
    ]
    return max(later, key=_place, default=None)


def _place(plan: Plan) -> tuple[int, int, int]:
    """Which of two plans is the later one: within an attempt they go one way only."""
    stage = {"running": 0, "evidence": 1, "ended": 2}.get(plan.state, 3)
    return plan.attempt, plan.epoch, stage


def begin(cluster: Cluster, circumstances: DecisionContext, after: Plan | None) -> Decision:
    """A run's first attempt.

    Whoever is left over from a run that ended does not count: its spares know less than its end,
    its members have just not heard of it yet.
    """
    ended = -1 if after is None else after.attempt
    leaving = set() if after is None else {member.incarnation for member in after.members}
    willing = [
        agent
        for agent in cluster.waiting()
        if agent.attempt >= ended and agent.incarnation not in leaving
    ]
    heard = [agent for agent in cluster.at_hand(()) if agent.node not in cluster.unheard]
    able = [agent for agent in willing if agent in heard]
    cluster = _with_minimum(cluster, able, circumstances)
    fit = [agent for agent in willing if agent in cluster.willing()]
    outside = cluster.outside()
    joining = [agent for agent in fit if not is_kept_out(agent, outside)]
    if willing and (stop := cluster.asked_to_stop()) is not None:
        refused = Plan(
            next_attempt(cluster, willing, ended), circumstances.epoch, "stopped", message=stop
        )
        return write_plan(cluster, refused)
    if unheard := awaits_words(cluster, willing):
        return Decision(waiting=unheard, forming=_are_enough(able))
    formed = formation.form(joining, (), circumstances.forming_for_s)
    formed = with_unfit(formed, cluster, willing)
    attempt = next_attempt(cluster, willing, ended)
    outcome = open_attempt(cluster, formed, attempt, None, circumstances)
    return dataclasses.replace(outcome, forming=_are_enough(able) or bool(able and not joining))


def _are_enough(agents: Sequence[AgentReport]) -> bool:
    return bool(agents) and len(agents) >= agents[0].min_nodes


def _with_minimum(
    cluster: Cluster, willing: Sequence[AgentReport], circumstances: DecisionContext
) -> Cluster:
    """What an earlier run kept outside stays there, unless it is needed once the last call is over:
    until then others may come."""
    plan, now = cluster.plan, circumstances.now_unix_s
    if plan is None or not plan.outside or not willing:
        return cluster
    outside = lasting(plan.outside, now, cluster.agents, cluster.nodes)
    if circumstances.forming_for_s >= willing[0].last_call_s:
        outside = bearable(outside, willing, willing[0].min_nodes)
    return dataclasses.replace(cluster, plan=dataclasses.replace(plan, outside=outside))


def next_attempt(cluster: Cluster, joining: Sequence[AgentReport], ended: int) -> int:
    """One more than any that someone has heard of."""
    floor = max((node.floor_attempt for node in cluster.nodes.values()), default=-1)
    return max(floor, ended, *(agent.attempt for agent in joining)) + 1


def open_attempt(
    cluster: Cluster,
    formed: formation.Formation | formation.NotFormed | formation.Mismatch,
    attempt: int,
    incident: Incident | None,
    circumstances: DecisionContext,
) -> Decision:
    """Write the plan of the next attempt, or say why there is none yet."""
    if isinstance(formed, formation.NotFormed):
        return Decision(waiting=formed.reason)
    if isinstance(formed, formation.Mismatch):
        refused = Plan(
            attempt,
            circumstances.epoch,
            "stopped",
            exit_code=EXIT_BAD_INPUT,
            message=formed.message,
        )
        kept = incident and stopped_over(incident, formed.message)
        return Decision((*_noted(cluster, kept), *write_plan(cluster, refused).writes))
    snapshot = find_snapshot(cluster, formed.members, incident)
    if circumstances.candidates is None:
        return Decision(
            needs_candidates=True,
            world_size=formed.world_size,
            has_snapshot=snapshot is not None,
        )
    below = math.inf if cluster.plan is None else trusted_below(cluster, cluster.plan, incident)
    choice = choose(circumstances.candidates, incident, below, snapshot)
    if obstacle := circumstances.unresumable or choice.obstacle:
        # To start from nothing would throw the job's work away: that is for people to decide.
        lost = Plan(
            attempt,
            circumstances.epoch,
            "stopped",
            exit_code=budget.EXIT_FAILED,
            message=obstacle,
        )
        kept = incident and stopped_over(incident, obstacle)
        return Decision((*_noted(cluster, kept), *write_plan(cluster, lost).writes))
    if snapshot is not None:
        is_last = bool(circumstances.candidates) and not choice.candidates
        snapshot = dataclasses.replace(snapshot, is_last=is_last)
    counted = incident is not None and incident.cause not in budget.PLANNED
    before = cluster.plan if incident is not None else None
    outside = cluster.outside()
    goes_on = incident is not None or bool(choice.candidates)  # else the data begins anew, too
    skips = cluster.plan.skips if cluster.plan is not None and goes_on else []
    resumed = choice.candidates[0].step if choice.candidates else 0
    passed_over = add_skip(skips, incident, resumed, circumstances.settings)
    note = choice.note + describe_skip(skips, passed_over)
    plan = Plan(
        attempt=attempt,
        epoch=circumstances.epoch,
        state="running",
        members=list(formed.members),
        world_size=formed.world_size,
        resume=[*([] if snapshot is None else [snapshot]), *choice.candidates],
        message=story(incident, note) if counted and incident is not None else "",
        restarts=(before.restarts if before is not None else 0) + int(counted),
        began_unix_s=before.began_unix_s if before is not None else circumstances.now_unix_s,
        outside=lasting(outside, circumstances.now_unix_s, cluster.agents, cluster.nodes),
        skips=passed_over,
        hooks=[] if cluster.plan is None else cluster.plan.hooks,
        first_attempt=attempt if before is None else before.first_attempt,
        requeues=(
            carried(cluster, formed.members, circumstances.requeued)
            if before is None
            else before.requeues
        ),
    )
    writes = (*_noted(cluster, incident), *write_plan(cluster, plan).writes)
    return Decision(writes, abandoned=choice.abandoned, abandoned_for=choice.note)


def _noted(cluster: Cluster, incident: Incident | None) -> tuple[Write, ...]:
    """What is decided about an incident. It is written before the plan, or a leader that dies in
    between leaves a restart that no budget counts; written twice it does no harm."""
    return (amend(cluster, incident),) if incident is not None and incident.identifier else ()


def _known_plans(cluster: Cluster, circumstances: DecisionContext) -> list[Plan]:
    """What this leader saw, and what the launchers obey."""
    texts = {agent.plan for agent in cluster.agents.values() if agent.plan}
    known = [circumstances.plan_seen, *(decode(Plan, text) for text in texts)]
    return [plan for plan in known if plan is not None]


def story(incident: Incident, note: str = "") -> str:
    """Why the attempt before was ended, in one line, for the console; then the note."""
    where = f" on node {incident.culprit_node}" if incident.culprit_node else ""
    reason = f": {incident.evidence[0]}" if incident.evidence else ""
    sure = f"{incident.confidence:.0%} sure"
    told = f"{incident.cause}{where}{reason} ({sure}); {STORY}{incident.identifier}"
    return f"{told}; {note}" if note else told


# How long the run's first start took: the best guess at a restart while there was none. Pure.
#
# Known to a leader that saw it; a later one assumes.


class FirstStart:
    """Of the run that this leader sees."""

    def __init__(self) -> None:
        self._saw_none = False
        """No attempt of the run was under way when it was looked at last."""
        self._run: float | None = None
        """When the run began that was looked at."""
        self._saw_it = False
        """Its ranks were seen before any of them stepped, and not all of them stepping since."""
        self._took_s: float | None = None

    def follow(self, cluster: Cluster, plan: Plan | None, now_unix_s: float) -> float | None:
        """From opening the first attempt until every rank made a step, seconds; None: not seen."""
        if plan is None or plan.state != "running" or plan.restarts or not plan.began_unix_s:
            self._saw_none = plan is None
            return None if plan is None else self._took_s
        ranks = cluster.ranks(plan)
        stepping = sum(rank.step > rank.resumed_step for rank in ranks.values())
        if self._run != plan.began_unix_s:
            self._run, self._took_s = plan.began_unix_s, None
            self._saw_it = self._saw_none or not stepping
        if stepping == plan.world_size and self._saw_it:
            took_s = now_unix_s - plan.began_unix_s
            # What took no time was told by a clock that was set meanwhile.
            self._took_s = took_s if took_s > 0 else None
            self._saw_it = False
        self._saw_none = False
        return self._took_s


# Which nodes are gone, cut off from the store, or run on without a sidecar. Pure.
#
# A member of the attempt under way is lost only if every witness that could have spoken is silent:
# the heartbeats of its launcher and its sidecar, steps completed elsewhere, round trips between
# sidecars. What is done about a lost node is decided in `watching`.

CONFIDENCE = 0.95
"""A node that is cut off from the store and from the other sidecars looks the same from here."""

SUSPECT_BEATS = 2.0
"""After so many heartbeats without one a node is asked closely: one that comes a little late makes
the leader look no more often, and half a second is left for rounds of questions."""

ROUNDS = 4
"""Rounds of questions without an answer, directly and through two others, that are silence."""

AT_ONCE_SHARE = 0.1
"""More nodes than this, and than one, that fall silent together: the way to the store first."""


@dataclass(frozen=True)
class Witnesses:
    """What speaks for nodes, as one judge has it."""

    heartbeats: Heartbeats
    steps: StepBegins
    heard: Mapping[str, LifeSign] = dataclasses.field(default_factory=dict)

    def silent_s(self, node: str, now: float) -> float:
        """For how long the store has heard of neither of its processes."""
        still = (self.heartbeats.still_for(f"{kind}/{node}", now) for kind in ("agent", "node"))
        return min(still)


def judge_presence(
    cluster: Cluster, witnesses: Witnesses, settings: SidecarSettings, now: float
) -> Cluster:
    """The cluster with who is lost, who is cut off from the store, and whose sidecar is gone."""
    timeout_s, beating = settings.node_timeout_s, witnesses.heartbeats
    at_work = {member.node for member in _at_work(cluster)}
    silent = {name for name in at_work if witnesses.silent_s(name, now) >= timeout_s}
    late = suspects(cluster, at_work, witnesses, settings, now)
    several = _at_once(late, witnesses, timeout_s, len(at_work), now)
    lost, ended, cut_off = dict[str, float](), set[str](), dict[str, str]()
    speechless = dict[str, float]()
    for name, agent in cluster.agents.items():
        node = cluster.nodes.get(name)
        if _saw_it_end(agent, node, witnesses, timeout_s, now):
            ended.add(name)
            lost[name] = beating.still_for(f"agent/{name}", now)
        elif name not in at_work:
            if _is_silent(agent, node, beating, timeout_s, now):
                lost[name] = beating.still_for(f"agent/{name}", now)
        elif name in silent:
            silence_s = _silence_s(name, witnesses, settings, now)
            if silence_s >= _patience_s(name, name in several, witnesses, settings):
                lost[name] = silence_s
            else:
                cut_off[name] = _why_not_lost(name, name in several, witnesses, settings, now)
        elif beating.still_for(f"agent/{name}", now) >= settings.unwitnessed_timeout_s:
            if _has_living_ranks(cluster, name):
                speechless[name] = beating.still_for(f"agent/{name}", now)
            elif _is_stuck(name, witnesses, settings, now):
                lost[name] = beating.still_for(f"agent/{name}", now)
    return dataclasses.replace(
        cluster,
        lost=lost,
        ended=frozenset(ended),
        stepped_with=frozenset(
            n for n in lost if witnesses.steps.began_elsewhere(n) > float("-inf")
        ),
        cut_off=cut_off,
        speechless=speechless,
        unattended=unattended_nodes(cluster, beating, timeout_s, now),
    )


def suspects(
    cluster: Cluster,
    names: Iterable[str],
    witnesses: Witnesses,
    settings: SidecarSettings,
    now: float,
) -> frozenset[str]:
    """Those of these members that were to be heard of by now."""
    after_s = SUSPECT_BEATS * settings.heartbeat_s
    at_work = {member.node for member in _at_work(cluster)}
    return frozenset(n for n in names if n in at_work and witnesses.silent_s(n, now) >= after_s)


def judged(cluster: Cluster, own: str, leader: str) -> frozenset[str]:
    """Whom the sidecar of this node has to know of: the leader of everybody, the others of the
    leader, whose place one of them takes."""
    others = {member.node for member in _at_work(cluster)} - {own}
    return frozenset(others if own == leader else others & {leader})


def next_due_s(
    cluster: Cluster,
    names: Iterable[str],
    witnesses: Witnesses,
    settings: SidecarSettings,
    now: float,
) -> float:
    """Seconds until somebody may have to be asked closely, or declared lost; infinity: nobody."""
    beating, timeout_s = witnesses.heartbeats, settings.node_timeout_s
    nodes = list(names)
    known = [name for name in beats(cluster) if name.partition("/")[2] in nodes]
    due = [
        beating.next_due_s(known, SUSPECT_BEATS * settings.heartbeat_s, now),
        beating.next_due_s(known, timeout_s, now),
    ]
    if any(timeout_s <= witnesses.silent_s(name, now) < 2 * timeout_s for name in nodes):
        due.append(settings.heartbeat_s / 3)  # whoever is asked may have been silent long enough
    return min(due)


def step_counts(cluster: Cluster, plan: Plan) -> dict[str, Steps]:
    """Node -> what all its ranks have done in this attempt, where all of them tell."""
    return {
        member.node: Steps(min(rank.step for rank in node.ranks), _collectives(node.ranks))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None
        if node.attempt == plan.attempt and len(node.ranks) == member.slots
    }


def _collectives(ranks: Sequence[RankReport]) -> dict[str, int]:
    """Process group, by the digest of its members -> collectives in it that each of its ranks began
    at the least. All in one, of no name, where it isn't known which groups they are of."""
    told = [parse_groups(rank.groups) for rank in ranks]
    if not all(any(groups) for groups in told):
        return {ANY_GROUP: min(sum(rank.collectives) for rank in ranks)}
    least: dict[str, int] = {}
    for groups, rank in zip(told, ranks, strict=True):
        for group, count in zip(groups, rank.collectives, strict=False):
            if group is not None:
                least[group.digest] = min(count, least.get(group.digest, count))
    return least


def unattended_nodes(
    cluster: Cluster, heartbeats: Heartbeats, timeout_s: float, now: float
) -> frozenset[str]:
    """Nodes whose sidecar is gone, whatever their launcher does; a restarted one beats again."""
    patience_s = timeout_s * UNRESPONSIVE_FACTOR
    return frozenset(
        name for name in cluster.nodes if heartbeats.still_for(f"node/{name}", now) >= patience_s
    )


def _at_work(cluster: Cluster) -> list[Member]:
    """Members whose ranks run: there is something to lose by taking them for lost."""
    plan = cluster.plan
    if plan is None or plan.state != "running":
        return []
    return [
        member
        for member in plan.members
        if (agent := cluster.agents.get(member.node)) is not None
        and (agent.incarnation, agent.attempt) == (member.incarnation, plan.attempt)
        and agent.state in ("running", "succeeded", "failed")
    ]


def _at_once(
    late: Iterable[str], witnesses: Witnesses, timeout_s: float, members: int, now: float
) -> set[str]:
    """Nodes that fell silent together with more others than nodes do by themselves.

    late: all that were to be heard of by now. Last heartbeats of nodes that are cut off at one
    moment lie up to a beat apart, so that one of them is lost before the next one's time is up.
    """
    most = max(1, int(AT_ONCE_SHARE * members))
    since_s = {name: witnesses.silent_s(name, now) for name in late}
    return {
        name
        for name in since_s
        if sum(abs(since_s[name] - other) <= timeout_s for other in since_s.values()) > most
    }


def _saw_it_end(
    agent: AgentReport, node: NodeReport | None, witnesses: Witnesses, timeout_s: float, now: float
) -> bool:
    """Whether its sidecar says so, over the store or when it was asked."""
    name = agent.node
    if node is None or node.launcher_pid != agent.pid:
        return False
    if witnesses.heartbeats.still_for(f"node/{name}", now) < timeout_s:
        return not node.launcher_alive
    return _answers(name, witnesses, timeout_s, now) and not witnesses.heard[name].life.has_launcher


def _is_silent(
    agent: AgentReport, node: NodeReport | None, beating: Heartbeats, timeout_s: float, now: float
) -> bool:
    """Of a node that runs no attempt: its launcher is silent, for long if its sidecar is heard."""
    vouched = node is not None and node.launcher_pid == agent.pid
    vouched = vouched and beating.still_for(f"node/{agent.node}", now) < timeout_s
    patience_s = timeout_s * UNRESPONSIVE_FACTOR if vouched else timeout_s
    return beating.still_for(f"agent/{agent.node}", now) >= patience_s


def _is_stuck(name: str, witnesses: Witnesses, settings: SidecarSettings, now: float) -> bool:
    """A launcher that is silent for long beside a sidecar that is heard but sees no rank, while no
    step is made."""
    silent_s = witnesses.heartbeats.still_for(f"agent/{name}", now)
    stood_s = now - witnesses.steps.began_elsewhere(name)
    return min(silent_s, stood_s) >= settings.unwitnessed_timeout_s


def _has_living_ranks(cluster: Cluster, name: str) -> bool:
    """Whether its sidecar, which is heard, sees the launcher's process and a rank of this attempt.
    Such a launcher was stopped, as by Ctrl-Z, or is starved; the ranks train on without it."""
    agent, node, plan = cluster.agents[name], cluster.nodes.get(name), cluster.plan
    if node is None or plan is None or node.attempt != plan.attempt:
        return False
    watched = node.launcher_alive and node.launcher_pid == agent.pid
    return watched and any(rank.alive for rank in node.ranks)


def _answers(name: str, witnesses: Witnesses, timeout_s: float, now: float) -> bool:
    heard = witnesses.heard.get(name)
    is_known = heard is not None and heard.answered_s is not None
    return is_known and heard is not None and now - (heard.answered_s or 0.0) < timeout_s


def _silence_s(name: str, witnesses: Witnesses, settings: SidecarSettings, now: float) -> float:
    """Seconds since any witness spoke for it. A step's age is known to a heartbeat only, which is
    counted in the node's favour."""
    stepped_s = now - witnesses.steps.began_elsewhere(name) - settings.heartbeat_s
    heard = witnesses.heard.get(name)
    answered_s = None if heard is None else heard.answered_s
    asked_s = float("inf") if answered_s is None else now - answered_s
    return max(0.0, min(witnesses.silent_s(name, now), stepped_s, asked_s))


def _patience_s(
    name: str, is_of_several: bool, witnesses: Witnesses, settings: SidecarSettings
) -> float:
    """How long nobody may have spoken for it: where nobody could have, that means little."""
    heard = witnesses.heard.get(name)
    could_speak = heard is not None and heard.answered_s is not None and heard.unanswered >= ROUNDS
    is_short = could_speak and not is_of_several
    longest_s = max(settings.node_timeout_s, settings.unwitnessed_timeout_s)
    return settings.node_timeout_s if is_short else longest_s


def _why_not_lost(
    name: str, is_of_several: bool, witnesses: Witnesses, settings: SidecarSettings, now: float
) -> str:
    """Which witness spoke for a node that the store does not hear, or why none could."""
    heard, timeout_s = witnesses.heard.get(name), settings.node_timeout_s
    if heard is not None and _answers(name, witnesses, timeout_s, now):
        life, stood_s = heard.life, now - heard.since_step_s
        ranks = f"its {life.ranks} ranks are at step {life.step}" if life.ranks else ""
        if ranks and stood_s >= settings.unwitnessed_timeout_s:
            ranks = f"its {life.ranks} ranks have stood at step {life.step} for {stood_s:.0f} s"
        return "its sidecar answers other nodes" + (f", {ranks}" if ranks else "")
    if now - witnesses.steps.began_elsewhere(name) - settings.heartbeat_s < timeout_s:
        return "the other nodes make steps with it"
    if is_of_several:
        return "other nodes fell silent with it, so the way to the store is suspected first"
    if heard is None or heard.answered_s is None:
        return "no other witness can tell whether it lives"
    return "it is being asked"


def find_absent(
    cluster: Cluster, heartbeats: Heartbeats, timeout_s: float, now: float, now_unix_s: float
) -> Iterator[Finding]:
    """Members that `cluster.lost` names, then those whose launcher or sidecar alone is silent.

    Who is gone is named in the finding, not who tells it.
    """
    plan = cluster.plan
    if plan is None or plan.state in TERMINAL:
        return
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is None or agent.incarnation != member.incarnation or agent.state == "left":
            continue
        if member.node in cluster.lost:
            silent_s = cluster.lost[member.node]
            why = how_lost(cluster, member.node, silent_s)
            yield _finding(Kind.NODE_LOST, member, now_unix_s - silent_s, why)
        elif member.node in cluster.cut_off:
            silent_s = heartbeats.still_for(f"node/{member.node}", now)
            why = f"cut off from the store for {silent_s:.1f} s: {cluster.cut_off[member.node]}"
            yield _finding(Kind.SIDECAR_LOST, member, now_unix_s - silent_s, why)
        elif member.node in cluster.speechless:
            silent_s = cluster.speechless[member.node]
            why = f"nothing was heard of its launcher for {silent_s:.0f} s, and its ranks live"
            yield _finding(Kind.LAUNCHER_LOST, member, now_unix_s - silent_s, why)
        else:
            silent_s = heartbeats.still_for(f"node/{member.node}", now)
            if why := _why_unwatched(cluster, member.node, silent_s, timeout_s):
                yield _finding(Kind.SIDECAR_LOST, member, now_unix_s - silent_s, why)


def saw_sidecar_end(cluster: Cluster, node: str) -> bool:
    """Whether this node's launcher, its parent, says that the sidecar last heard of has ended."""
    agent, report = cluster.agents.get(node), cluster.nodes.get(node)
    return agent is not None and report is not None and agent.ended_sidecar == report.pid != 0


def _why_unwatched(cluster: Cluster, node: str, silent_s: float, timeout_s: float) -> str:
    if saw_sidecar_end(cluster, node):
        return "its launcher saw the sidecar end"
    if node in cluster.nodes and silent_s >= timeout_s:
        return f"nothing was heard of its sidecar for {silent_s:.1f} s"
    return ""


def _finding(kind: Kind, member: Member, since_unix_s: float, why: str) -> Finding:
    ranks = list(member.ranks)
    return Finding(kind, member.node, since_unix_s, CONFIDENCE, ranks, evidence=[why])
