"""When a slow node gives its place to a spare, and for what incident: at a checkpoint, once that is
worth it (`worth_replacing`), a spare waits (`spares`) and the job can go on without the node. Pure.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy import budget, quarantine
from holdfast_sidecar.policy.checkpoint_order import can_be_saved
from holdfast_sidecar.policy.checkpoint_schedule import cost_of
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.formation import find_spares
from holdfast_sidecar.policy.modes import mode_of_job
from holdfast_sidecar.policy.outcome import CARRIED, DecisionContext, SlowSince
from holdfast_sidecar.policy.requests import too_few_without
from holdfast_sidecar.records.formatting import gained, percent, span, who, why
from holdfast_sidecar.records.plan import Incident, Plan, Quarantine
from holdfast_sidecar.records.steps import SlowCause, Slowness, SlownessReport

# Whether it is worth a restart to go on without a slow node: only when it has been slow for long,
# for a reason that stays with it, and when the job has lost as much by it as the restart will cost.
#
# To act then is the rule for renting or buying skis: nobody knows how long the job still runs, and
# who buys once the rents come to the price never pays more than twice what hindsight would. Pure.

SURE = 0.9
"""Of who it is and why: one wrong in ten is as much as anybody would restart for."""

JUDGEMENTS = 10
"""So often it must have been judged slow, however long the steps are: as many as it takes to call
a rank slow at all, once more."""

LEAST_GAIN = 0.05
"""Healthy nodes differ by 1 to 5 %: below that the spare may be as slow."""

ASSUMED_RESTART_S = 120.0
"""What a restart takes where this job has had none and nobody saw it start: imports, groups, state,
the first steps.
Small jobs need seconds; FT-HSDP (arXiv 2602.00277) reports 200 s at 16,000 GPUs."""

MEASURED = 3
"""The newest restarts that its cost is the median of."""


GUESSED = 2.0
"""So many times as long, and as much lost, where nothing was measured that a node could be to blame
for, and ranks beside it are well: then it is as likely the script's own doing, which a restart is
paid for twice."""

STARTS = 2.0
"""A restart takes no longer than so many starts: ranks are ended and evidence is kept before, state
is loaded after."""


@dataclass(frozen=True)
class Beside:
    """The ranks on the node of somebody slow."""

    well: int = 0
    """Ranks that are not slow."""
    slow: int = 1


def obstacle(
    one: Slowness,
    spell: SlowSince | None,
    restart_s: float,
    policy: PolicySettings,
    beside: Beside = Beside(),
) -> str:
    """Why its node is not replaced for this slowness, whoever waits; empty: it should be."""
    if policy.replace_slow_after_s <= 0:
        return "policy.replace_slow_after_s is 0"
    return not_its_node(one, beside) or not_yet(one, spell, restart_s, policy, beside)


def not_its_node(one: Slowness, beside: Beside) -> str:
    """Why another node would be no better."""
    if not one.node or one.cause not in CARRIED:
        against = "what nobody can explain" if one.cause is SlowCause.UNKNOWN else one.cause.value
        return f"another node is no help against {against}"
    if one.is_asleep and beside.well:
        are = "the other rank on its node is" if beside.well == 1 else "other ranks on its node are"
        return f"it sleeps or waits by itself, which is not the machine's doing: {are} well"
    return ""


def not_yet(
    one: Slowness, spell: SlowSince | None, restart_s: float, policy: PolicySettings, beside: Beside
) -> str:
    """Why it is not worth it by now."""
    doubt = GUESSED if is_doubtful(one, beside) else 1.0
    after_s, price_s = doubt * policy.replace_slow_after_s, doubt * restart_s
    guess = " (twice, as its cause is a guess)" if doubt > 1 else ""
    if not one.is_persistent:
        return "it may pass"
    if one.confidence < SURE:
        return f"only {one.confidence:.0%} sure"
    if spell is None or spell.judgements < JUDGEMENTS or spell.lasted_s < after_s:
        return f"not seen for {span(after_s)} yet{guess}"
    if spell.gain < LEAST_GAIN:
        return f"the job would be only {percent(spell.gain)} faster"
    if spell.lost_s < price_s:
        return f"it cost {span(spell.lost_s)} so far, a restart costs {span(restart_s)}{guess}"
    return ""


def is_doubtful(one: Slowness, beside: Beside) -> bool:
    """Whether it may as well be what the script does there. A GPU may be slow without a sign, and
    several ranks that are slow where nobody is well speak of what they share."""
    is_whole_node = beside.slow > 1 and not beside.well
    return one.is_guess and one.is_host_only and not is_whole_node


def restart_cost_s(cluster: Cluster, start_s: float | None = None) -> float:
    """What a planned restart costs this job: from the end of an attempt until all ranks step in the
    next, and what a checkpoint keeps the loop. start_s: what the first start took."""
    known = sorted(
        (i for i in cluster.incidents.values() if i.recovered_unix_s and i.ended_unix_s),
        key=lambda incident: incident.detected_unix_s,
    )
    restarts = [i for i in known if i.decided == "restart"]
    # What took no time was told by a clock that was set, or by two that differ.
    took = [s for i in restarts if (s := i.recovered_unix_s - i.ended_unix_s) > 0]
    assumed_s = ASSUMED_RESTART_S if start_s is None else STARTS * start_s
    down_s = statistics.median(took[-MEASURED:]) if took else assumed_s
    saving = cost_of(cluster.ledger.values())
    return down_s + (0.0 if saving is None else saving.blocked_s)


STRAGGLER = "straggler"
"""Cause of the incident that it becomes."""

FRESH_S = 30.0
"""A checkpoint older than this is not gone back to for the sake of speed: what was done since would
be done again."""


@dataclass(frozen=True)
class Replacement:
    """Who goes, for whom, and why it is worth it."""

    slow: Slowness
    spare: str
    lasted_s: float
    restart_s: float

    @property
    def asked_by(self) -> str:
        """The name by which its checkpoint is asked for."""
        return f"{STRAGGLER}:{self.slow.node}"


class ReplacementSave(Enum):
    """How far the checkpoint is that a replacement waits for."""

    NO = "no"
    UNDER_WAY = "under way"
    YES = "yes"
    FAILED = "failed"


def own_slowness(cluster: Cluster, plan: Plan, leader: str) -> SlownessReport | None:
    """What this leader's sidecar says of the attempt under way."""
    told = (node.slow for node in cluster.nodes.values() if node.candidate == leader)
    standing = next(told, None)
    is_current = standing is not None and standing.attempt == plan.attempt
    return standing if is_current and plan.state == "running" else None


def find(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Replacement | None:
    """The node that a spare should take the place of; whether that may be done is for the mode."""
    standing = own_slowness(cluster, plan, circumstances.leader)
    if standing is None or not circumstances.slow:
        return None
    policy, restart_s = circumstances.settings.policy, price(cluster, circumstances)
    members = {member.node for member in plan.members}
    for one in sorted(standing.slow, key=lambda one: -one.gain):
        spell = circumstances.slow.get(one.node)
        beside = well_beside(one, standing, plan)
        if one.node not in members or obstacle(one, spell, restart_s, policy, beside):
            continue
        spares = find_spares(cluster, plan, one.node)
        if spares and not hindrance(cluster, plan, one, circumstances):
            assert spell is not None
            return Replacement(one, spares[0].node, spell.lasted_s, restart_s)
    return None


def price(cluster: Cluster, circumstances: DecisionContext) -> float:
    """What a restart costs, as far as this leader knows."""
    return restart_cost_s(cluster, circumstances.start_s)


def well_beside(one: Slowness, standing: SlownessReport, plan: Plan) -> Beside:
    """How the other ranks of its node fare."""
    there = {rank for m in plan.members if m.node == one.node for rank in m.ranks}
    slow = there & {*one.ranks, *(rank for other in standing.slow for rank in other.ranks)}
    return Beside(well=len(there - slow), slow=len(slow))


def hindrance(cluster: Cluster, plan: Plan, one: Slowness, circumstances: DecisionContext) -> str:
    """Why the job can't go on without this node now, or may not be restarted again."""
    settings, now = circumstances.settings, circumstances.now_unix_s
    agent = cluster.agents[one.node]
    part = quarantine.part_of(agent, cluster.agents.values())
    new = Quarantine(part, one.node, now, now)
    share = settings.policy.quarantine_share
    if earlier := _replaced_before(cluster, plan, one):
        return f"node {earlier} was slow in its place, too"
    too_much = quarantine.is_too_much(plan.outside, new, cluster.agents.values(), share)
    if why := too_few_without(cluster, plan, one.node) or too_much:
        return why
    if (mode := mode_of_job(settings, "quarantine")) != "act":
        return f"the mode for keeping a node outside is {mode}"
    verdict = budget.decide(
        Incident("", plan.attempt, STRAGGLER),
        cluster.incidents.values(),
        plan.restarts,
        cap(cluster, settings.policy),
        settings.policy,
        now,
    )
    # What would need a pause first is no gain.
    is_free = isinstance(verdict, budget.Restart) and not verdict.pause_s
    return "" if is_free else "the budget of restarts for it is used up"


def _replaced_before(cluster: Cluster, plan: Plan, one: Slowness) -> str:
    """A node of this run that was replaced for these ranks; empty: none was. Ranks that are slow
    wherever they run are slow for what they do, and no third node would help."""
    return next(
        (
            i.culprit_node
            for i in cluster.incidents.values()
            if i.cause == STRAGGLER and i.decided == "restart" and i.culprit_node != one.node
            if i.detected_unix_s >= plan.began_unix_s and {*i.culprit_ranks} & {*one.ranks}
        ),
        "",
    )


def cap(cluster: Cluster, policy: PolicySettings) -> int:
    """Most restarts of the run, as launchers were told or the settings say; -1: none but the
    budget."""
    caps = [a.max_restarts for a in cluster.agents.values() if a.max_restarts is not None]
    return min(caps) if caps else policy.max_restarts


def acted_on(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Replacement | None:
    """As `find`, where it may be done and the job can be saved before."""
    if mode_of_job(circumstances.settings, STRAGGLER) != "act" or plan.pause is not None:
        return None
    found = find(cluster, plan, circumstances)
    if found is None or not can_be_saved(incident_of(found, plan), cluster, plan):
        return None
    return found


def how_saved(
    found: Replacement, cluster: Cluster, plan: Plan, now_unix_s: float
) -> ReplacementSave:
    """How far its checkpoint is. One that came to nothing is tried again after the next one; one
    after which nobody was replaced, as long after as it takes to find a node slow."""
    order = cluster.checkpoint
    is_own = order is not None and found.asked_by in order.answers
    if order is None or not is_own or order.attempt != plan.attempt or order.came_too_late:
        return ReplacementSave.NO
    if order.state in ("armed", "writing"):
        return ReplacementSave.UNDER_WAY
    if order.state != "complete":
        return ReplacementSave.FAILED
    entry = cluster.ledger.get(order.identifier)
    if entry is None:
        return ReplacementSave.UNDER_WAY
    return ReplacementSave.YES if now_unix_s - entry.at_unix_s <= FRESH_S else ReplacementSave.NO


def _was_just_saved(
    found: Replacement, cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> bool:
    """Whether a checkpoint for it is too old already, and too young for another: a node on the
    verge of being replaced makes no series of them."""
    now, after_s = circumstances.now_unix_s, circumstances.settings.policy.replace_slow_after_s
    return any(
        found.asked_by in entry.answers and now - entry.at_unix_s < after_s
        for entry in cluster.ledger.values()
        if entry.attempt == plan.attempt
    )


def asks_to_save(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> str:
    """The name by which a checkpoint is wanted for a replacement; empty: none is."""
    found = acted_on(cluster, plan, circumstances)
    if found is None:
        return ""
    is_wanted = how_saved(found, cluster, plan, circumstances.now_unix_s) is ReplacementSave.NO
    is_again = _was_just_saved(found, cluster, plan, circumstances)
    return found.asked_by if is_wanted and not is_again else ""


def due(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident | None:
    """The incident for which the attempt is ended now: the job is saved, and all else holds."""
    found = acted_on(cluster, plan, circumstances)
    if found is None:
        return None
    saved = how_saved(found, cluster, plan, circumstances.now_unix_s)
    return incident_of(found, plan) if saved is ReplacementSave.YES else None


def incident_of(found: Replacement, plan: Plan) -> Incident:
    """It begins when something is done about it: its cost is that of the restart, not of the
    slowness, which is told as such."""
    one = found.slow
    said = f"{percent(one.slowdown)} slower than its peers since step {one.since_step}: {why(one)}"
    worth = (
        f"slow without a break for {span(found.lasted_s)}; {gained(one)}, and a restart costs"
        f" {span(found.restart_s)}; node {found.spare} waits to take its place"
    )
    return Incident(
        "",
        plan.attempt,
        STRAGGLER,
        one.node,
        list(one.ranks),
        one.confidence,
        evidence=[said, *one.evidence, worth],
    )


# Why nodes of slow ranks stay where they are, though policy would have them replaced. Pure.

MOST = 8
"""Of those who are slow: more is no page."""

SAVING = {
    ReplacementSave.NO: "the next checkpoint is not reached yet",
    ReplacementSave.UNDER_WAY: "its checkpoint is being made",
    ReplacementSave.FAILED: "its checkpoint failed",
    ReplacementSave.YES: "it is about to be",
}


def why_they_stay(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> dict[str, str]:
    """Who is slow -> why nobody takes the place; nothing where that is not wanted at all."""
    standing = own_slowness(cluster, plan, circumstances.leader)
    if standing is None or circumstances.settings.policy.replace_slow_after_s <= 0:
        return {}
    worst = sorted(standing.slow, key=lambda one: -one.gain)[:MOST]
    return {who(one): _why(one, standing, cluster, plan, circumstances) for one in worst}


def _why(
    one: Slowness,
    standing: SlownessReport,
    cluster: Cluster,
    plan: Plan,
    circumstances: DecisionContext,
) -> str:
    """First what no patience helps against."""
    settings, beside = circumstances.settings, well_beside(one, standing, plan)
    if why := not_its_node(one, beside):
        return why
    if one.node not in {member.node for member in plan.members}:
        return "its node is not in this attempt"
    spell, restart_s = circumstances.slow.get(one.node), price(cluster, circumstances)
    spares = find_spares(cluster, plan, one.node)
    if not spares:
        return "no spare waits that could take its place"
    if why := hindrance(cluster, plan, one, circumstances):
        return why
    if (mode := mode_of_job(settings, STRAGGLER)) != "act":
        return f"the mode for it is {mode}"
    if plan.pause is not None:
        return "the job is paused"
    if why := not_yet(one, spell, restart_s, settings.policy, beside):
        return why
    found = Replacement(one, spares[0].node, 0.0, restart_s)
    if not can_be_saved(incident_of(found, plan), cluster, plan):
        return "the job can't be saved before (that takes the three lines and --checkpoint-dir)"
    return SAVING[how_saved(found, cluster, plan, circumstances.now_unix_s)]
