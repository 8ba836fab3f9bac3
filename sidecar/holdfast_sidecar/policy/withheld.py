"""What was not done about a fault: its mode forbids it, the job is paused, or there is no way to.

It is recorded as an incident all the same, and closed when the fault is over by itself: by such
incidents people judge whether Holdfast may act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from holdfast_sidecar.policy.blame import mode_where_it_was, name_culprit
from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.policy.checkpoint_choice import ABOUT_NUMBERS
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.hardware import OF_HARDWARE, began_unix_s, name_fault, unanswered
from holdfast_sidecar.policy.modes import mode_of_job, mode_on
from holdfast_sidecar.policy.numbers import find_divergence, find_left_alone
from holdfast_sidecar.policy.outcome import DecisionContext, Write, amend
from holdfast_sidecar.policy.replacement import STRAGGLER, incident_of
from holdfast_sidecar.policy.replacement import find as find_replacement
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import LEFT_ALONE, WITHHELD, Incident, PauseWindow, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section

ASKS_FOR_MORE = (Kind.HANG, Kind.STALL, Kind.DATA_STALL)
"""Kinds of findings for which ranks are ended, where they are sure enough."""

AGAIN_S = 60.0
"""A fault that comes back within a minute is the same: one that flickers makes no series."""


def acting_findings(cluster: Cluster, plan: Plan) -> list[tuple[Finding, str]]:
    """What the members found that is sure enough to act on, each with the mode of its node. What a
    node found before it was cut off from the store may be over."""
    return [
        (finding, mode_on(node, finding.kind.value))
        for node, finding in _silent(cluster, plan)
        if finding.acts and node.node not in cluster.cut_off
    ]


def is_anyone_silent(cluster: Cluster, plan: Plan) -> bool:
    """Whether the members found a rank that stands still, however sure of it they are."""
    return any(True for _ in _silent(cluster, plan))


def _silent(cluster: Cluster, plan: Plan) -> Iterator[tuple[NodeReport, Finding]]:
    return (
        (node, finding)
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in node.findings
        if finding.kind in ASKS_FOR_MORE
    )


def record(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> tuple[Write, ...]:
    """Open an incident for a fault that nothing is done about; close it once that is over.

    Ranks that hang, hardware that is ill, numbers that are wrong and nodes that are slow are told
    apart: a job may live with all but the first for long, and hang meanwhile.
    """
    ill = _withheld_fault(cluster, plan, circumstances)
    hang = _withheld_hang(cluster, plan, circumstances)
    numbers = _withheld_numbers(cluster, plan, circumstances)
    slow = _withheld_slowness(cluster, plan, circumstances)
    known = [i for i in _of_attempt(cluster, plan) if not i.ended_unix_s or i.went_over_into]
    of_numbers = [i for i in known if i.cause in ABOUT_NUMBERS]
    of_hardware = [i for i in known if i.cause in OF_HARDWARE]
    of_slowness = [i for i in known if i.cause == STRAGGLER]
    of_hangs = [i for i in known if i.cause not in ABOUT_NUMBERS | OF_HARDWARE | {STRAGGLER}]
    # One at a time, as there is one new name; the next round has another.
    now = circumstances.now_unix_s
    return (
        _follow(cluster, plan, hang, of_hangs, now)
        or _follow(cluster, plan, ill, of_hardware, now)
        or _follow(cluster, plan, numbers, of_numbers, now)
        or _follow(cluster, plan, slow, of_slowness, now)
    )


def _follow(
    cluster: Cluster, plan: Plan, found: Incident | None, known: list[Incident], now: float
) -> tuple[Write, ...]:
    is_open = [i for i in known if not i.recovered_unix_s and not i.ended_unix_s]
    if found is None:
        return tuple(amend(cluster, _over(cluster, plan, incident, now)) for incident in is_open)
    if not all(_goes_over(incident, found) for incident in is_open):
        return ()
    over = [amend(cluster, _gone_over(incident, found, now)) for incident in is_open]
    closed = [incident for incident in known if incident not in is_open]
    earlier = next((i for i in closed if _is_again(i, found, now, plan.pause)), None)
    if earlier is not None:
        return (*over, amend(cluster, _seen_again(earlier, found)))
    return (*over, Write(Section.INCIDENTS, found.identifier, encode(found), None))


def _goes_over(incident: Incident, found: Incident) -> bool:
    """Whether numbers that were wrong in one way now are in another, as a spike that ends in NaN.

    Planned work is one incident, whatever it stops on its way.
    """
    is_of_numbers = incident.cause in ABOUT_NUMBERS and found.cause in ABOUT_NUMBERS
    return is_of_numbers and incident.cause != found.cause and found.decided != "paused"


def _gone_over(incident: Incident, found: Incident, now: float) -> Incident:
    return dataclasses.replace(incident, ended_unix_s=now, went_over_into=found.cause)


def _withheld_hang(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident | None:
    """The incident that findings make which would have a rank ended, and have not."""
    found = acting_findings(cluster, plan)
    withheld = [
        (finding, _mode(plan, mode)) for finding, mode in found if _mode(plan, mode) != "act"
    ] or _kept_by_the_culprits_node(found, cluster, plan)
    # The same who would be named if it were acted on: whoever is silent may only wait for another.
    named = name_culprit([one for one, _ in withheld], cluster, plan)
    if named is None:
        return None
    _, mode = max(withheld, key=lambda pair: pair[0].confidence)
    return _incident(cluster, plan, named, mode, circumstances)


def _kept_by_the_culprits_node(
    found: list[tuple[Finding, str]], cluster: Cluster, plan: Plan
) -> list[tuple[Finding, str]]:
    """Silence that would be acted on, but for the mode of the node that the others wait for."""
    hangs = [finding for finding, _ in found if finding.kind in ASKS_FOR_MORE]
    named = name_culprit(hangs, cluster, plan)
    mode = "act" if named is None else mode_where_it_was(named, cluster)
    return [] if mode == "act" else [(finding, mode) for finding in hangs]


def _withheld_fault(
    cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> Incident | None:
    """Ill hardware for which the attempt would be ended, and is not."""
    withheld = [one for one in unanswered(cluster, plan) if _mode(plan, one.mode) != "act"]
    named = name_fault(withheld, plan, began_unix_s(cluster, plan))
    if named is None:
        return None
    return _incident(cluster, plan, named, _mode(plan, withheld[0].mode), circumstances)


def _withheld_numbers(
    cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> Incident | None:
    """Numbers that are wrong on all ranks, and what is not done about them."""
    settings, now = circumstances.settings, circumstances.now_unix_s
    if (found := find_divergence(cluster, plan, settings, now)) is not None:
        mode = _mode(plan, mode_of_job(settings, found.cause))
        return None if mode == "act" else _incident(cluster, plan, found, mode, circumstances)
    if (found := find_left_alone(cluster, plan, settings, now)) is not None:
        return _incident(cluster, plan, found, LEFT_ALONE, circumstances)
    return None


def _withheld_slowness(
    cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> Incident | None:
    """A slow node whose place a spare would take, and does not."""
    mode = _mode(plan, mode_of_job(circumstances.settings, STRAGGLER))
    found = None if mode == "act" else find_replacement(cluster, plan, circumstances)
    if found is None:
        return None
    return _incident(cluster, plan, incident_of(found, plan), mode, circumstances)


def _mode(plan: Plan, mode: str) -> str:
    return mode if plan.pause is None else "paused"


def continued(cluster: Cluster, plan: Plan, found: Incident) -> Incident:
    """What is acted on now, as the end of what nothing was done about so far, if it is the same:
    whoever pauses a job for their work reads of it once."""
    withheld = [i for i in _of_attempt(cluster, plan) if _goes_on(i, found)]
    earlier = max(withheld, key=lambda one: _likeness(one, found), default=None)
    return found if earlier is None else carried_on(earlier, found)


def carried_on(earlier: Incident, found: Incident) -> Incident:
    """What is acted on now, under the name of what nothing was done about so far."""
    waited_s = found.detected_unix_s - earlier.detected_unix_s
    why = "the job was paused" if earlier.decided == "paused" else "that was not to be or could not"
    told = [f"for {waited_s:.0f} s nothing was done, as {why}"]
    if not _is_same(earlier, found):
        told += [f"seen meanwhile: {earlier.cause}: {reason}" for reason in earlier.evidence[:1]]
    return dataclasses.replace(
        found,
        identifier=earlier.identifier,
        since_unix_s=min(earlier.since_unix_s, found.since_unix_s),
        detected_unix_s=earlier.detected_unix_s,
        withheld=earlier.decided,
        evidence=[*found.evidence, *told],
    )


def _goes_on(earlier: Incident, found: Incident) -> bool:
    if earlier.recovered_unix_s or earlier.ended_unix_s or found.cause in PLANNED:
        return False
    return earlier.decided == "paused" or _is_same(earlier, found)


def _likeness(earlier: Incident, found: Incident) -> tuple[bool, bool]:
    is_same_sort = (earlier.cause in ABOUT_NUMBERS) == (found.cause in ABOUT_NUMBERS)
    return _is_same(earlier, found), is_same_sort


def overtaken(
    cluster: Cluster, plan: Plan, now_unix_s: float, goes_on: str = ""
) -> tuple[Write, ...]:
    """The attempt ends for another reason: what is open then will not be over by itself.

    goes_on: the one of which that is the end.
    """
    return tuple(
        amend(cluster, dataclasses.replace(incident, ended_unix_s=now_unix_s))
        for incident in _of_attempt(cluster, plan)
        if not incident.recovered_unix_s and not incident.ended_unix_s
        if incident.identifier != goes_on
    )


def _of_attempt(cluster: Cluster, plan: Plan) -> Iterator[Incident]:
    for incident in cluster.incidents.values():
        if incident.decided in WITHHELD and incident.attempt == plan.attempt:
            yield incident


def _over(cluster: Cluster, plan: Plan, incident: Incident, now: float) -> Incident:
    # Nothing was ended, so nothing has to be done again: it went on from where it is.
    steps = (rank.step for rank in cluster.ranks(plan).values())
    went_on = max((incident.step_reached, *steps))
    return dataclasses.replace(incident, recovered_unix_s=now, step_resumed=went_on)


def _is_again(incident: Incident, named: Incident, now: float, pause: PauseWindow | None) -> bool:
    if pause is not None and incident.decided == named.decided == "paused":
        # Planned work is one incident, whatever it stops on its way.
        return incident.detected_unix_s >= pause.since_unix_s
    if incident.decided == named.decided == LEFT_ALONE:
        # A job that lives with its spikes has hundreds: one tells of all that an attempt had.
        return incident.cause == named.cause
    over_unix_s = max(incident.recovered_unix_s, incident.ended_unix_s)
    return _is_same(incident, named) and now - over_unix_s <= AGAIN_S


def _is_same(incident: Incident, named: Incident) -> bool:
    return (incident.cause, incident.culprit_node, incident.culprit_ranks) == (
        named.cause,
        named.culprit_node,
        named.culprit_ranks,
    )


def _seen_again(incident: Incident, named: Incident) -> Incident:
    """The incident, open again; with others to blame, where those are new."""
    again = dataclasses.replace(
        incident,
        recovered_unix_s=0.0,
        ended_unix_s=0.0,
        went_over_into="",
        came_back=incident.came_back + 1,
    )
    if incident.decided == LEFT_ALONE:
        # Whoever was first each time is named; where that varies, nobody is to blame.
        blamed = (incident.culprit_node, incident.culprit_ranks)
        is_same = blamed == (named.culprit_node, named.culprit_ranks)
        return again if is_same else dataclasses.replace(again, culprit_node="", culprit_ranks=[])
    if set(named.culprit_ranks) <= set(incident.culprit_ranks):
        return again
    return dataclasses.replace(
        again,
        culprit_node=incident.culprit_node if incident.culprit_node == named.culprit_node else "",
        culprit_ranks=sorted({*incident.culprit_ranks, *named.culprit_ranks}),
        evidence=[*incident.evidence, *(f"then: {reason}" for reason in named.evidence[:1])],
    )


def _incident(
    cluster: Cluster, plan: Plan, named: Incident, mode: str, circumstances: DecisionContext
) -> Incident:
    steps = (rank.step for rank in cluster.ranks(plan).values())
    now = circumstances.now_unix_s
    return dataclasses.replace(
        named,
        identifier=circumstances.new_identifier,
        since_unix_s=named.since_unix_s or now,
        detected_unix_s=now,
        decided=mode,
        step_reached=max(steps, default=0),
        evidence=[*named.evidence, *_why(mode)],
    )


def _why(mode: str) -> list[str]:
    if mode == LEFT_ALONE:
        return []  # which of its reasons it was is among what was found
    why = "it is paused" if mode == "paused" else f"the mode is {mode}"
    return [f"would have restarted the job, but {why}"]
