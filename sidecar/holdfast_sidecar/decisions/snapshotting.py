"""How often ranks take snapshots: as often as their cost allows, or not at all, and why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.records.checkpoint import SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

FEWEST_SLOTS = 2
"""One that keeps the newest snapshot that exists, one to write the next into."""

SNAPSHOTS_BEFORE_DOUBT = 4
"""The first one costs more (pages are mapped, layouts planned); three more make a median."""

FIRST_EVERY_S = 1.0
"""Until that is known. One at every step would double the time of steps as short as a snapshot, for
as long as it takes to hear of it: half a second, a hundred such steps."""

RARER = 1.25
OFTENER = 2
"""Costs and steps vary by tens of percent from minute to minute, and ranks change their rhythm at
slightly different steps, which voids a snapshot or two: to come more often only a factor of two is
worth that. What is known to take more than its share has to come less often."""


def decide_rhythm(
    settings: SnapshotSettings,
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    ranks: Iterable[RankReport],
    before: SnapshotOrder | None,
    epoch: int,
) -> SnapshotOrder | None:
    """The order that shall stand; None when it is not known yet, or stays as it is."""
    reports = snapshot_reports(plan, nodes)
    if len(reports) < len(plan.members) or not all(_has_decided(r) for r in reports.values()):
        return None
    standing = before if before is not None and before.attempt == plan.attempt else None
    step_s = max((rank.step_s for rank in ranks), default=0.0)
    every, reason = _rhythm(settings, reports, step_s, standing)
    if every == 0 and not reason:
        # No step was seen yet: those of the attempt before were much the same.
        every = 0 if before is None else before.every_steps
        if every == 0:
            return None
    wanted = SnapshotOrder(plan.attempt, epoch, every, reason)
    if standing is not None and dataclasses.replace(standing, epoch=epoch) == wanted:
        return None
    return wanted


def snapshot_reports(plan: Plan, nodes: Mapping[str, NodeReport]) -> dict[str, SnapshotReport]:
    """What the members' sidecars say about the slots of this attempt's ranks."""
    return {
        member.node: report
        for member in plan.members
        if (node := nodes.get(member.node)) is not None
        and (report := node.snapshot) is not None
        and report.attempt == plan.attempt
    }


def fewest_slots(plan: Plan, nodes: Mapping[str, NodeReport]) -> int:
    """Slots that every rank of this attempt has; 0 while some member has none, or has not said."""
    reports = snapshot_reports(plan, nodes)
    if len(reports) < len(plan.members):
        return 0
    return min((report.slots for report in reports.values()), default=0)


def _has_decided(report: SnapshotReport) -> bool:
    return report.slots > 0 or (report.wants and bool(report.obstacle))


def _rhythm(
    settings: SnapshotSettings,
    reports: Mapping[str, SnapshotReport],
    step_s: float,
    standing: SnapshotOrder | None,
) -> tuple[int, str]:
    short = [node for node, report in sorted(reports.items()) if report.slots < FEWEST_SLOTS]
    if short:
        why = reports[short[0]].obstacle or f"{reports[short[0]].slots} slots per rank"
        return 0, f"node {short[0]}: {why}"
    if settings.every_steps > 0:
        return settings.every_steps, ""
    current = standing.every_steps if standing is not None else 0
    needed, rarer = _needed(settings, reports.values(), step_s, current), RARER
    if needed == 0 and step_s:  # until the cost is known a guess is as good as the next one
        needed, rarer = math.ceil(FIRST_EVERY_S / step_s), OFTENER
    if current == 0:
        return needed, ""
    is_far_off = needed >= rarer * current or needed * OFTENER <= current
    return (needed if needed and is_far_off else current), ""


def _needed(
    settings: SnapshotSettings,
    reports: Iterable[SnapshotReport],
    step_s: float,
    current: int,
) -> int:
    """The smallest number of steps between snapshots that keeps to `most_share`; 0: not known.

    A snapshot every step is part of each step's time, and has to be taken off; one that comes less
    often than every other step does not show in the median.
    """
    known = list(reports)
    cost_s = max(report.blocked_s for report in known)
    if min(report.taken for report in known) < SNAPSHOTS_BEFORE_DOUBT or not cost_s or not step_s:
        return 0
    own_s = step_s - cost_s if current == 1 else step_s
    own_s = max(own_s, step_s / 100)
    return max(1, math.ceil(cost_s / (settings.most_share * own_s)))
