"""After an attempt was called off: keep the evidence, name the culprit, then restart or stop."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.policy import budget, formation, hardware, modes, running, withheld
from holdfast_sidecar.policy.blame import (
    FROM_OUTSIDE,
    MAY_BE_VICTIM,
    Blame,
    agent_of,
    blame_exits,
    describe,
    exits_of,
    gone_members,
    is_of_script,
    is_only_silent,
    lost_members,
    part_of_node,
    too_few_to_decide,
    weight,
)
from holdfast_sidecar.policy.budget import WITHOUT_NODE, ran_out_of_memory
from holdfast_sidecar.policy.checkpoint_choice import is_about_numbers, onset_in
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.exclusion import (
    Way,
    as_asked,
    noted,
    without_ill,
    without_others,
    without_repeat_offender,
    without_slow,
)
from holdfast_sidecar.policy.formation import awaits_words, unfit_words, with_hooks, with_unfit
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    amend,
    stopped,
    stopped_over,
    with_keepers,
    with_places,
    write_plan,
)
from holdfast_sidecar.policy.preemption import is_asked
from holdfast_sidecar.policy.quarantine import bearable
from holdfast_sidecar.policy.replacement import STRAGGLER, cap
from holdfast_sidecar.policy.requests import RESTART, why_paused
from holdfast_sidecar.policy.requeue import (
    had_stepped,
    incidents_of_run,
    launch_had_stepped,
    resumed_from,
)
from holdfast_sidecar.policy.signature import are_programs_own, is_of_surroundings, sign
from holdfast_sidecar.policy.start import next_attempt, open_attempt
from holdfast_sidecar.records.plan import WITHHELD, Incident, Plan, Quarantine
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, Exit

# How a job goes on after a failure: restart in place, without the node, further back, or stop.
#
# Each rung is taken only when the one below has not helped: a node goes when it alone is blamed
# again and again, state when attempts that resume from it die without a new step. Only of hardware
# that is known to be ill nobody waits to see it fail again.

ROLL_BACK = "roll_back"

OF_STATE = frozenset({"crash", "hang", "stall"})
"""Causes that the state which was resumed from may have."""

JITTER = 0.25
"""Part of a pause by which jobs differ that failed together (a switch, a file system), so that they
don't come back together, too."""


def find_way(
    cluster: Cluster,
    plan: Plan,
    incident: Incident,
    settings: Settings,
    cap: int,
    now_unix_s: float,
) -> Way | budget.Stop:
    """The lowest rung that may help. `cap`: see `restart.decide`."""
    policy = settings.policy
    if incident.cause == STRAGGLER:
        # Its budget was asked before the attempt was ended: nobody stops a job because it is slow.
        way = Way(incident, 0.0, list(plan.outside))
        return without_slow(way, cluster, settings, now_unix_s)
    if incident.signature.startswith(OUTPUT_UNREAD):
        # Who takes the nodes back may have ended what reads the output before the job was saved.
        code = budget.EXIT_REQUEUE if is_asked(cluster) else budget.EXIT_FAILED
        return budget.Stop(code, f"{OUTPUT_UNREAD}: started again it would end in the same way")
    earlier = [i for i in cluster.incidents.values() if i.identifier != incident.identifier]
    of_run = [i for i in incidents_of_run(cluster, plan) if i.identifier != incident.identifier]
    verdict = budget.decide(incident, of_run, plan.restarts, cap, policy, now_unix_s)
    if isinstance(verdict, budget.Stop):
        return verdict
    pause_s = jittered(verdict.pause_s, incident.identifier)
    way = Way(incident, pause_s, list(plan.outside), verdict.why)
    if incident.cause == RESTART:
        return as_asked(way, cluster, now_unix_s, policy)
    if incident.cause in budget.PLANNED:
        return way
    if incident.remedy:
        ill = without_ill(way, cluster, settings, earlier, now_unix_s)
        if isinstance(ill, budget.Stop):
            return ill
        way = ill
    else:
        way = without_repeat_offender(way, cluster, settings, earlier, now_unix_s)
    way = without_others(way, cluster, plan, settings, now_unix_s)
    if way.incident.escalation == WITHOUT_NODE:
        return way
    return _further_back(way, cluster, plan, of_run, policy)


def jittered(pause_s: float, identifier: str) -> float:
    """The pause, longer by up to a quarter: the same each time the same incident is judged."""
    return pause_s * (1 + JITTER * zlib.crc32(identifier.encode()) / 2**32)


def is_stuck(incident: Incident, earlier: Sequence[Incident], limit: int) -> bool:
    """Whether the last failures came without a step that had not been made before.

    What was rolled back begins anew: its steps are made again on purpose.
    """
    row = [incident]
    if is_about_numbers(incident):
        return False
    for one in sorted(earlier, key=lambda one: one.attempt, reverse=True):
        if one.cause in budget.PLANNED or one.decided != "restart":
            continue
        if is_about_numbers(one) or len(row) == limit:
            break
        row.append(one)
    is_suspect = all(
        i.cause in OF_STATE and not ran_out_of_memory(i) and not i.is_of_surroundings for i in row
    )
    first = row[-1]
    return (
        is_suspect
        and len(row) == limit
        and all(one.step_reached <= first.step_reached for one in row)
    )


def _further_back(
    way: Way, cluster: Cluster, plan: Plan, earlier: Sequence[Incident], policy: PolicySettings
) -> Way | budget.Stop:
    """Behind the state that was resumed from, once; when that does not help either, stop."""
    incident = way.incident
    if not is_stuck(incident, earlier, policy.stuck_limit):
        return way
    words = f"{policy.stuck_limit} failures in a row, and no attempt came past step"
    gone_back = [i for i in earlier if i.escalation == ROLL_BACK]
    if any(one.step_reached >= incident.step_reached for one in gone_back):
        return budget.Stop(
            budget.EXIT_DO_NOT_REQUEUE,
            f"{words} {incident.step_reached}, though the job had gone back further",
        )
    resumed = resumed_from(cluster, plan)
    good = [e.step for e in cluster.ledger.values() if e.verdict == "good" and e.step < resumed]
    if not good:
        return way
    told = f"{words} {incident.step_reached}: back behind step {resumed}, from which they resumed"
    distrusting = dataclasses.replace(incident, escalation=ROLL_BACK, distrusts_from=resumed)
    return noted(dataclasses.replace(way, incident=distrusting), told)


OF_A_LOSS = ("node_lost", "node_left")
"""Causes by which a node is gone with all its ranks."""


def await_evidence(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision:
    """Nothing is ended before every living node kept what would die, or the time for it is over."""
    if paused := why_paused(plan):
        return Decision(waiting=paused)
    missing = [
        member.node
        for member in plan.members
        if cluster.is_alive(member.node)
        and (node := cluster.nodes.get(member.node)) is not None
        and node.evidence_for != plan.incident
    ]
    timed_out = circumstances.evidence_for_s > circumstances.settings.policy.evidence_timeout_s
    if missing and not timed_out:
        return Decision(waiting=f"waiting for evidence from {', '.join(sorted(missing))}")
    ended = dataclasses.replace(plan, state="ended", epoch=circumstances.epoch)
    incident = with_places(cluster, with_keepers(cluster, _known(cluster, plan, circumstances)))
    stamped = dataclasses.replace(incident, ended_unix_s=circumstances.now_unix_s)
    return Decision((amend(cluster, stamped), *write_plan(cluster, ended).writes))


def reform(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision:
    """After an end: wait until the living are down, name the culprit, restart or stop."""
    known = _written(cluster, plan)
    if known is not None and running.is_interrupted(cluster, plan):
        # Launchers that leave join no other attempt, though they may still say that they would.
        open_yet = () if known.decided else (amend(cluster, running.closed_as_interruption(known)),)
        return Decision(open_yet, waiting=running.TOLD)
    if known is not None and _is_news(explained := _explained(known, cluster, plan), known):
        # The finding may be gone with its sidecar: whoever leads next need not see it again.
        return Decision((amend(cluster, explained),))
    if awaited := _still_ending(cluster, plan):
        return Decision(waiting=f"waiting for {', '.join(awaited)} to end its ranks")
    incident = _final(cluster, plan, circumstances)
    if few := _why_not_yet(cluster, plan, incident, circumstances):
        return Decision(waiting=few)
    if plan.incident and known is None:
        # Whoever ended the attempt died before it wrote this down, and pauses count from now on; or
        # the store lost what was written.
        ended_unix_s = incident.ended_unix_s or circumstances.now_unix_s
        missed = dataclasses.replace(incident, ended_unix_s=ended_unix_s)
        return Decision((amend(cluster, missed),))
    if known is not None and (_is_news(incident, known) or _is_loss(incident, known)):
        # Of a loss at once: until enough nodes are here again people are told of what is known now.
        return Decision((amend(cluster, incident),))
    settings, now = circumstances.settings, circumstances.now_unix_s
    way = find_way(cluster, plan, incident, settings, cap(cluster, settings.policy), now)
    if isinstance(way, budget.Stop):
        refused = stopped(plan, circumstances, way.exit_code, way.message)
        if way.outside is not None:
            refused = dataclasses.replace(refused, outside=way.outside)
            refused = with_hooks(refused, cluster, circumstances)
        stamped = stopped_over(incident, way.message)
        return Decision((amend(cluster, stamped), *write_plan(cluster, refused).writes))
    if circumstances.ended_for_s < way.pause_s:
        return _back_off(cluster, plan, way, circumstances)
    return _go_on(cluster, plan, way, circumstances)


def _still_ending(cluster: Cluster, plan: Plan) -> list[str]:
    """Members that are heard and have ranks yet."""
    return sorted(
        member.node
        for member in plan.members
        if cluster.is_alive(member.node)
        and (agent := cluster.agents[member.node]).incarnation == member.incarnation
        and agent.state != "joining"
    )


def _why_not_yet(
    cluster: Cluster, plan: Plan, incident: Incident, circumstances: DecisionContext
) -> str:
    """Why nothing is decided for the moment; empty: nothing speaks against it.

    Members that are only silent have not been lost before it is sure that they stay away.
    """
    if few := too_few_to_decide(cluster, plan, circumstances.majority) or why_paused(plan):
        return few
    after_s = circumstances.settings.policy.lost_act_after_s
    silent = sorted(
        member.node
        for member in gone_members(cluster, plan)
        if is_only_silent(cluster, member) and cluster.lost[member.node] < after_s
    )
    if not silent or incident.cause in OF_A_LOSS:
        return ""
    return f"{', '.join(silent)} silent, and may be back in a moment"


def _back_off(cluster: Cluster, plan: Plan, way: Way, circumstances: DecisionContext) -> Decision:
    """Tell launchers, and so people, what is waited for and how long in all."""
    attempt = next_attempt(cluster, cluster.willing(), plan.attempt)
    words = f"waiting {way.pause_s:.3g} s before attempt {attempt}: {way.why_pause}"
    if plan.waits == words:
        return Decision(waiting=words)
    told = dataclasses.replace(plan, waits=words, epoch=circumstances.epoch)
    return Decision(write_plan(cluster, told).writes, waiting=words)


def _go_on(cluster: Cluster, plan: Plan, way: Way, circumstances: DecisionContext) -> Decision:
    """Open the next attempt, once enough nodes are here that may come in."""
    cluster = _without(cluster, plan, way.outside)
    joining, now = cluster.joining(), circumstances.now_unix_s
    if unheard := awaits_words(cluster, cluster.waiting()):
        return Decision(waiting=unheard)
    formed = formation.form(joining, plan.members, 0.0)
    formed = with_unfit(formed, cluster, cluster.waiting())
    patience = circumstances.settings.policy.join_timeout_s
    is_late = circumstances.awaiting_for_s > way.pause_s + patience
    if is_late and isinstance(formed, formation.NotFormed):
        message = f"{len(joining)} nodes came back within {patience:g} s, too few to go on"
        message += unfit_words(cluster, cluster.waiting())
        refused = stopped(plan, circumstances, budget.EXIT_REQUEUE, message)
        stamped = stopped_over(way.incident, message)
        return Decision((amend(cluster, stamped), *write_plan(cluster, refused).writes))
    if plan.waits and isinstance(formed, formation.NotFormed):
        # The pause is over; what is still waited for is said by those that wait.
        told = dataclasses.replace(plan, waits="", epoch=circumstances.epoch)
        return Decision(write_plan(cluster, told).writes, waiting=formed.reason)
    reopened = dataclasses.replace(way.incident, decided="restart", reopened_unix_s=now)
    attempt = next_attempt(cluster, cluster.willing(), plan.attempt)
    return open_attempt(cluster, formed, attempt, reopened, circumstances)


def _without(cluster: Cluster, plan: Plan, outside: Sequence[Quarantine]) -> Cluster:
    """The cluster as the next attempt finds it: these nodes are not in it, as far as enough are."""
    able = cluster.at_hand(())
    least = able[0].min_nodes if able else 1
    kept = bearable(outside, able, least)
    return dataclasses.replace(cluster, plan=dataclasses.replace(plan, outside=kept))


def _is_news(incident: Incident, known: Incident) -> bool:
    """Whether it is by its hardware only that it is explained now."""
    return incident.cause != known.cause and incident.cause in hardware.OF_HARDWARE


def _is_loss(incident: Incident, known: Incident) -> bool:
    """Whether it is known now that the node is gone, and not just a rank of it. One that leaves by
    order may be the first of all: then the crash stays what it was."""
    return incident.cause == "node_lost" and known.cause == "crash" and not known.decided


def _explained(incident: Incident, cluster: Cluster, plan: Plan) -> Incident:
    better = hardware.explained(incident, cluster, plan)
    is_news = _is_news(better, incident)
    return dataclasses.replace(better, seen_as=incident.cause) if is_news else better


def _final(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident:
    """The incident with what has become known since, which may be what its hardware told."""
    return _explained(_told_since(cluster, plan, circumstances), cluster, plan)


def _told_since(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident:
    """What launchers told since: later exits, a node that never came back."""
    incident = with_keepers(cluster, _known(cluster, plan, circumstances))
    if _said_why(cluster, plan, incident):
        incident = hardware.taken_back(incident, cluster, plan)
    if incident.onset_step < 0 and (onset := onset_in(cluster, plan)) >= 0:
        incident = dataclasses.replace(incident, onset_step=onset)
    stepped = incident.had_stepped or had_stepped(cluster, plan, exits_of(cluster, plan))
    incident = dataclasses.replace(
        incident, step_reached=step_reached(cluster, plan, incident), had_stepped=stepped
    )
    if incident.cause not in ("crash", *OF_A_LOSS):
        return incident
    lost = lost_members(cluster, plan, circumstances.now_unix_s)
    if lost is not None and not _has_cause_of_its_own(incident, cluster, plan, circumstances):
        if incident.cause in OF_A_LOSS and incident.culprit_ranks == lost.culprit_ranks:
            return incident  # what it was known by; of a node that is back nothing is to be seen
        # Crashes mostly are of the loss; should one not be, what was seen of it is still told.
        seen = incident.evidence if incident.cause == "crash" else []
        return dataclasses.replace(
            incident,
            cause=lost.cause,
            culprit_node=lost.culprit_node,
            culprit_ranks=lost.culprit_ranks,
            confidence=lost.confidence,
            since_unix_s=min(lost.since_unix_s, incident.since_unix_s),
            signature="",
            evidence=[*lost.evidence, *seen],
            is_of_script=False,
            is_of_surroundings=False,
            culprit_part=part_of_node(cluster, lost.culprit_node),
        )
    if incident.cause == "crash" and (blame := _blame_anew(cluster, plan, incident)) is not None:
        began = modes.of_crash(blame.exit, cluster.ranks(plan).get(blame.rank))
        ever = stepped or launch_had_stepped(cluster, plan)
        return dataclasses.replace(
            incident,
            culprit_node=blame.node,
            culprit_ranks=[blame.rank],
            confidence=blame.confidence,
            since_unix_s=min(began, incident.detected_unix_s),
            signature=sign(blame, ever),
            evidence=_reasons(incident, blame),
            is_of_script=is_of_script(blame.exit),
            is_of_surroundings=is_of_surroundings(blame.exit, ever),
            culprit_part=part_of_node(cluster, blame.node),
        )
    return incident


def _has_cause_of_its_own(
    incident: Incident, cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> bool:
    """Whether ranks crashed by themselves, and of the nodes that are missed since nothing but a
    short silence is known: one that the store does not hear for a moment has nothing to do with
    it."""
    gone = gone_members(cluster, plan)
    blame = blame_exits(cluster, plan)
    if incident.cause != "crash" or blame is None or weight(blame.exit) <= MAY_BE_VICTIM:
        return False
    silent_s = max(cluster.lost.get(member.node, 0.0) for member in gone)
    is_short = silent_s < circumstances.settings.sidecar.unwitnessed_timeout_s
    return is_short and all(is_only_silent(cluster, member) for member in gone)


def _said_why(cluster: Cluster, plan: Plan, incident: Incident) -> bool:
    """Whether hardware was blamed for a death before its launcher told the rank's own words."""
    if incident.cause not in hardware.OF_HARDWARE or plan.cause != "crash":
        return False
    blame = blame_exits(cluster, plan)
    return blame is not None and blame.exit.exit_code > 0 and are_programs_own(blame.exit.message)


def _blame_anew(cluster: Cluster, plan: Plan, incident: Incident) -> Blame | None:
    """Whose exit began it, now that launchers have reaped; None where what was known says more.

    Of several deaths the sidecars may have seen the first one, and a launcher only its victim's.
    """
    blame = blame_exits(cluster, plan)
    if blame is None or (blame.node, [blame.rank]) == (
        incident.culprit_node,
        incident.culprit_ranks,
    ):
        return blame
    return blame if blame.confidence >= incident.confidence else None


def _reasons(incident: Incident, blame: Blame) -> list[str]:
    """The exit, and what a sidecar found about the same rank; what says most comes first: of who
    sent a SIGKILL an exit knows nothing."""
    ended = f"rank {blame.rank}: "
    found = incident.evidence if incident.culprit_ranks == [blame.rank] else []
    reasons = [
        ended + describe(blame.exit) + _not_by_us(blame.exit),
        *(r for r in found if not r.startswith(ended)),
    ]
    return sorted(reasons, key=lambda reason: "OOM killer" not in reason)


def _not_by_us(exit_: Exit) -> str:
    """What a launcher ends itself it does not report, and a sidecar ends what hangs alone."""
    return ", not by Holdfast" if exit_.exit_code in FROM_OUTSIDE and not exit_.message else ""


def _known(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident:
    """The incident as written down, here or on this node's disk, else as far as the plan that names
    it tells of it."""
    if (written := _written(cluster, plan)) is not None:
        return written
    earlier = cluster.incidents.get(plan.incident)
    recalled = circumstances.recalled
    if recalled is not None and recalled.identifier == plan.incident and earlier is None:
        if recalled.decided not in WITHHELD:
            return recalled
        earlier = recalled
    told = Incident(
        plan.incident,
        plan.attempt,
        plan.cause or "unknown",
        plan.culprit_node,
        list(plan.culprit_ranks),
        since_unix_s=circumstances.now_unix_s,
        detected_unix_s=circumstances.now_unix_s,
    )
    return told if earlier is None else withheld.carried_on(earlier, told)


def _written(cluster: Cluster, plan: Plan) -> Incident | None:
    """The incident, once it is written down as what the attempt was ended for.

    What nothing was done about before may have given it its name, and its words are still those.
    """
    incident = cluster.incidents.get(plan.incident)
    return None if incident is None or incident.decided in WITHHELD else incident


def step_reached(cluster: Cluster, plan: Plan, incident: Incident) -> int:
    """Steps that all ranks had completed when the attempt ended: what has to be done again counts
    from there.

    Launchers read it from the pages of dead ranks. Of ranks that were lost with their node nothing
    later than their last report is known: then those that are left speak, which may count one step
    too many as lost, and never one too few.
    """
    steps = [
        step
        for member in plan.members
        if (agent := agent_of(cluster, member)) is not None and agent.attempt == plan.attempt
        for step in agent.steps.values()
    ]
    return min(steps, default=incident.step_reached)
