"""What to resume from after an incident: the newest state, or the newest good one before numbers
went wrong. Storage says what there is and has left out what can't be used at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.blame import exits_of
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry, SnapshotReport
from holdfast_sidecar.records.findings import HARDWARE
from holdfast_sidecar.records.plan import Candidate, Incident, Member, Plan
from holdfast_sidecar.records.reports import Exit, RankReport

ABOUT_NUMBERS = frozenset({"nonfinite", "spike", "corruption"})
"""Causes after which nothing newer than the onset may be trusted, in memory or on storage."""


@dataclass(frozen=True)
class RestoreChoice:
    """What to try, best first."""

    candidates: tuple[Candidate, ...]
    abandoned: tuple[Candidate, ...] = ()
    """What the job goes back behind, and must never come back to."""
    note: str = ""
    """What people should know of it."""
    obstacle: str = ""
    """Why there is nothing to try though there are checkpoints; empty: nothing is in the way."""


def is_about_numbers(incident: Incident | None) -> bool:
    """Whether numbers were wrong when the attempt ended, whatever ended it: a script that checks
    its loss crashes on purpose. So they may be where state led straight to failures."""
    return incident is not None and (
        incident.cause in ABOUT_NUMBERS or incident.onset_step >= 0 or incident.distrusts_from >= 0
    )


def trusted_below(cluster: Cluster, plan: Plan, incident: Incident | None) -> float:
    """The state of fewer steps than this may be gone on from, in memory and on storage; infinite:
    any, 0: only what has proved good, or else the oldest checkpoint from before numbers went wrong.
    `incident`: what ended the plan's attempt.

    A loss that was not finite says nothing against the steps before it: a loss scaler passes over
    such a step, and something else may have ended the attempt then. An error of the script's own
    is no such thing: it may well be about the loss.
    """
    ranks = cluster.ranks(plan).values()
    if incident is None:
        return trusted_now(plan, ranks, -1)
    is_own_error = incident.is_of_script and not incident.is_of_surroundings
    is_about_loss = incident.onset_step >= 0 and is_own_error
    if incident.cause in ABOUT_NUMBERS or incident.distrusts_from >= 0 or is_about_loss:
        return 0
    return trusted_now(plan, ranks, incident.onset_step, incident.step_reached)


def trusted_now(
    plan: Plan, ranks: Collection[RankReport], onset_step: int, reached: int = 0
) -> float:
    """The same while the attempt runs: losses are not finite since this step; -1: they are.

    What the attempt was not to go on from counts as little as it did, until a rank came past it:
    only then has each cleared its slots. Numbers that go wrong again, and no later, are of the
    state before. `reached`: a step that is known beside what the ranks tell.
    """
    below = math.inf if onset_step < 0 else onset_step
    reached = max(reached, *(rank.step for rank in ranks), 0)
    earlier = next((c.below for c in plan.resume if c.below is not None), None)
    if earlier is None:
        return below
    if below <= earlier:
        return 0
    return below if reached >= earlier else earlier


def onset_of(told: Iterable[RankReport | Exit]) -> int:
    """The first step of losses that are not finite now, over all these; -1 while all are."""
    return min((one.onset_step for one in told if one.onset_step >= 0), default=-1)


def onset_in(cluster: Cluster, plan: Plan) -> int:
    """The same over the plan's attempt.

    A script that checks its loss may be gone before its sidecar told of it: then its launcher does.
    """
    return onset_of([*cluster.ranks(plan).values(), *exits_of(cluster, plan)])


def choose(
    candidates: Sequence[Candidate],
    incident: Incident | None,
    below: float,
    snapshot: Candidate | None = None,
) -> RestoreChoice:
    """The order in which to try these, which come newest first and of one branch, after `snapshot`.

    below: see trusted_below.
    """
    if incident is None or math.isinf(below):
        return RestoreChoice(tuple(candidates))
    if below:
        return _before(candidates, below, snapshot)
    if incident.distrusts_from >= 0 and incident.onset_step < 0:
        return _behind(candidates, incident.distrusts_from)
    onset = incident.onset_step
    what = _what(incident)
    before = [c for c in candidates if onset < 0 or c.step < onset]
    if good := [c for c in before if c.is_good]:
        return RestoreChoice(
            tuple(good),
            _newer(candidates, good[0]),
            f"{what}: back to step {good[0].step}, the newest good checkpoint before",
        )
    if before:
        # Further from the onset is likelier to be sound; and it is all there is.
        oldest = before[-1]
        return RestoreChoice(
            (oldest,),
            _newer(candidates, oldest),
            f"{what}, and no checkpoint before has proved good: back to the oldest, of step "
            f"{oldest.step}",
        )
    if candidates:
        return RestoreChoice((), obstacle=f"{what}, and no checkpoint is from before")
    return RestoreChoice(())


def _before(
    candidates: Sequence[Candidate], below: float, snapshot: Candidate | None
) -> RestoreChoice:
    """The newest of fewer steps, good or not: nothing speaks against them."""
    before = tuple(c for c in candidates if c.step < below)
    since = tuple(c for c in candidates if c.step >= below)
    what = f"numbers were not finite from step {below:.0f} on"
    first = snapshot or next(iter(before), None)
    if first is None:
        return RestoreChoice(
            (), obstacle=f"{what}, and no checkpoint is from before" if since else ""
        )
    return RestoreChoice(before, since, f"{what}: back to {first.words}")


def _what(incident: Incident) -> str:
    if incident.onset_step < 0:
        return incident.cause
    were = "spiked" if incident.cause == "spike" else "were not finite"
    return f"numbers {were} from step {incident.onset_step} on"


def _behind(candidates: Sequence[Candidate], step: int) -> RestoreChoice:
    """The newest good one before this step; without one there is no better guess than the newest,
    for nothing proves that the state is to blame."""
    good = [c for c in candidates if c.step < step and c.is_good]
    if not good:
        return RestoreChoice(tuple(candidates))
    return RestoreChoice(
        tuple(good),
        _newer(candidates, good[0]),
        f"the state of step {step} led straight to failures: back to step {good[0].step}, the"
        " newest good checkpoint before",
    )


def _newer(candidates: Sequence[Candidate], chosen: Candidate) -> tuple[Candidate, ...]:
    return tuple(c for c in candidates if c.step > chosen.step)


# When a complete checkpoint has proved good: the job ran on from it and stayed well.


def on_trial(cluster: Cluster, plan: Plan) -> list[LedgerEntry]:
    """Complete checkpoints that this attempt runs on from, oldest first.

    Those it wrote, and those it goes back to. What lies ahead of where it resumed is of a branch
    that was left, and nothing that happens now speaks for it.
    """
    ranks = cluster.ranks(plan)
    if len(ranks) < plan.world_size:
        return []
    resumed = max((rank.resumed_step for rank in ranks.values()), default=0)
    behind = {c.identifier for c in plan.resume if c.tier == "durable" and c.step <= resumed}
    return sorted(
        (
            entry
            for entry in cluster.ledger.values()
            if entry.verdict == "complete"
            and (entry.attempt == plan.attempt or entry.identifier in behind)
        ),
        key=lambda entry: (entry.attempt, entry.step),
    )


def state_of_trial(entry: LedgerEntry, cluster: Cluster, plan: Plan) -> str:
    """What must stay the same for the whole probation; empty while something speaks against it.

    A loss or gradient that was not a number begins it anew, though training went on after it, and
    so does a spike.
    """
    ranks = cluster.ranks(plan).values()
    if len(ranks) < plan.world_size or any(map(_is_ill, ranks)):
        return ""
    if _has_ill_writer(entry, cluster):
        return ""
    seen = sum(r.nonfinite_losses + r.nonfinite_gradients + r.spikes for r in ranks)
    return f"{plan.attempt} {seen}"


def has_passed(
    entry: LedgerEntry,
    ranks: Mapping[int, RankReport],
    well_for_s: float,
    settings: CheckpointSettings,
) -> bool:
    """Whether it has run long and far enough. `well_for_s`: since when its state is the same."""
    if well_for_s < settings.good_after_s:
        return False
    run_on = min(
        (rank.step - max(entry.step, rank.resumed_step) for rank in ranks.values()), default=0
    )
    return run_on >= settings.good_after_steps


def _is_ill(rank: RankReport) -> bool:
    return not rank.is_loss_finite or not rank.is_gradient_finite or rank.spike_onset >= 0


def _has_ill_writer(entry: LedgerEntry, cluster: Cluster) -> bool:
    """Whether a node that wrote it has an open hardware fault: not one that a program made (most
    XIDs), nor one of a part that the job does not use."""
    writers = (cluster.nodes.get(name) for name in entry.nodes)
    return any(
        finding.kind in HARDWARE and finding.remedy.blames_hardware
        for node in writers
        if node is not None
        for finding in node.findings
    )


# Whether the next attempt may resume from snapshots, and which of them have to be fetched first.
#
# Which step it is the ranks find out themselves, at the moment they load: they hold the data.

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
