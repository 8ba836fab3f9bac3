"""Whether the next attempt may resume from snapshots, and which of them have to be fetched first.

Which step it is the ranks find out themselves, at the moment they load: they hold the data.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from holdfast_sidecar.decisions.choosing import trusted_below
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.plan import Candidate, Incident, Member, Plan

NAME = "snapshot"
"""Tier and identifier of the candidate."""


def find_snapshot(
    cluster: Cluster, members: Sequence[Member], incident: Incident | None
) -> Candidate | None:
    """The snapshot to try before all checkpoints; None when there can't be one for all ranks.

    None of steps since numbers went wrong; nor by another number of ranks, for each has only its
    own part.
    """
    before = cluster.plan
    if incident is None or before is None:
        return None
    below = trusted_below(cluster, before, incident)
    if below == 0:
        return None
    if before.world_size != sum(member.slots for member in members):
        return None
    reports = _reports(cluster)
    places = _places_of_ranks(members)
    home = {rank: member.node for rank, member in places.items()}
    earlier = _places_of_ranks(before.members)
    if all(_is_same(earlier.get(rank), member) for rank, member in places.items()):
        found = _in_place(before, home, reports, below)
    else:
        found = _by_fetching(home, reports, below)
    if found is None:
        return None
    return dataclasses.replace(
        found, since=first_that_counts(before), below=None if math.isinf(below) else int(below)
    )


def first_that_counts(before: Plan) -> int:
    """The first attempt whose slots count after this one.

    One that was not to resume from snapshots went back behind all there were; its ranks clear their
    slots as they load, but may have died before.
    """
    return next((c.since for c in before.resume if c.tier == NAME), before.attempt)


def _in_place(
    before: Plan, home: Mapping[int, str], reports: Mapping[str, SnapshotReport], below: float
) -> Candidate | None:
    """Every rank is where its slots are. Reports lag behind the slots, so a node that had made
    slots counts, also when it has not told of a sealed one yet: unless only old ones count."""
    have_slots = all(
        (report := reports.get(node)) is not None
        and (report.held.get(str(rank)) or (report.slots and report.attempt == before.attempt))
        for rank, node in home.items()
    )
    if not have_slots:
        return None
    held = {rank: _held(reports, node, rank) for rank, node in home.items()}
    common = [step for step in _common(home, held) if step < below]
    if not common and not math.isinf(below):
        return None
    return Candidate(NAME, "", max(common, default=-1), tier=NAME)


def _by_fetching(
    home: Mapping[int, str], reports: Mapping[str, SnapshotReport], below: float
) -> Candidate | None:
    """Some rank is on another node now: the newest step that each finds in its slots or elsewhere.

    Copies are of one common step; a rank whose own slots have gone past it needs its copy, too.
    """
    sources = {rank: _sources(reports, rank, node) for rank, node in home.items()}
    known = {rank: set(steps) for rank, steps in sources.items()}
    common = [step for step in _common(home, known) if step < below]
    if not common:
        return None
    step = max(common)
    fetches = {
        str(rank): sources[rank][step]
        for rank, node in home.items()
        if step not in _held(reports, node, rank)
    }
    return Candidate(NAME, "", step, tier=NAME, fetches=fetches)


def _sources(reports: Mapping[str, SnapshotReport], rank: int, home: str) -> dict[int, str]:
    """Step -> a node that can give this rank's part of it: where it runs, or one that listens."""
    return {
        step: node
        for node, report in sorted(reports.items())
        if node == home or report.peer_address
        for step in (*report.held.get(str(rank), ()), *report.copies.get(str(rank), ()))
    }


def _common(home: Mapping[int, str], steps: Mapping[int, set[int]]) -> set[int]:
    return set.intersection(*(steps[rank] for rank in home)) if home else set()


def _held(reports: Mapping[str, SnapshotReport], node: str, rank: int) -> set[int]:
    report = reports.get(node)
    return set() if report is None else set(report.held.get(str(rank), ()))


def _reports(cluster: Cluster) -> dict[str, SnapshotReport]:
    """Of living nodes, by the sidecar of the launcher that is there now: what an earlier one had
    went with it."""
    return {
        name: report
        for name, node in cluster.nodes.items()
        if cluster.is_alive(name)
        and node.launcher_pid in (0, cluster.agents[name].pid)
        and (report := node.snapshot) is not None
    }


def _places_of_ranks(members: Sequence[Member]) -> dict[int, Member]:
    return {rank: member for member in members for rank in member.ranks}


def _is_same(before: Member | None, now: Member) -> bool:
    """Whether this is the launcher that had the rank before."""
    return before is not None and (before.node, before.incarnation) == (now.node, now.incarnation)
