"""What to resume from after an incident: the newest state, or the newest good one before numbers
went wrong. Storage says what there is and has left out what can't be used at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.losses import exits_of
from holdfast_sidecar.records.plan import Candidate, Incident, Plan
from holdfast_sidecar.records.reports import Exit, RankReport

ABOUT_NUMBERS = frozenset({"nonfinite", "spike", "corruption"})
"""Causes after which nothing newer than the onset may be trusted, in memory or on storage."""


@dataclass(frozen=True)
class Choice:
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
) -> Choice:
    """The order in which to try these, which come newest first and of one branch, after `snapshot`.

    below: see trusted_below.
    """
    if incident is None or math.isinf(below):
        return Choice(tuple(candidates))
    if below:
        return _before(candidates, below, snapshot)
    if incident.distrusts_from >= 0 and incident.onset_step < 0:
        return _behind(candidates, incident.distrusts_from)
    onset = incident.onset_step
    what = _what(incident)
    before = [c for c in candidates if onset < 0 or c.step < onset]
    if good := [c for c in before if c.is_good]:
        return Choice(
            tuple(good),
            _newer(candidates, good[0]),
            f"{what}: back to step {good[0].step}, the newest good checkpoint before",
        )
    if before:
        # Further from the onset is likelier to be sound; and it is all there is.
        oldest = before[-1]
        return Choice(
            (oldest,),
            _newer(candidates, oldest),
            f"{what}, and no checkpoint before has proved good: back to the oldest, of step "
            f"{oldest.step}",
        )
    if candidates:
        return Choice((), obstacle=f"{what}, and no checkpoint is from before")
    return Choice(())


def _before(candidates: Sequence[Candidate], below: float, snapshot: Candidate | None) -> Choice:
    """The newest of fewer steps, good or not: nothing speaks against them."""
    before = tuple(c for c in candidates if c.step < below)
    since = tuple(c for c in candidates if c.step >= below)
    what = f"numbers were not finite from step {below:.0f} on"
    first = snapshot or next(iter(before), None)
    if first is None:
        return Choice((), obstacle=f"{what}, and no checkpoint is from before" if since else "")
    return Choice(before, since, f"{what}: back to {first.words}")


def _what(incident: Incident) -> str:
    if incident.onset_step < 0:
        return incident.cause
    were = "spiked" if incident.cause == "spike" else "were not finite"
    return f"numbers {were} from step {incident.onset_step} on"


def _behind(candidates: Sequence[Candidate], step: int) -> Choice:
    """The newest good one before this step; without one there is no better guess than the newest,
    for nothing proves that the state is to blame."""
    good = [c for c in candidates if c.step < step and c.is_good]
    if not good:
        return Choice(tuple(candidates))
    return Choice(
        tuple(good),
        _newer(candidates, good[0]),
        f"the state of step {step} led straight to failures: back to step {good[0].step}, the"
        " newest good checkpoint before",
    )


def _newer(candidates: Sequence[Candidate], chosen: Candidate) -> tuple[Candidate, ...]:
    return tuple(c for c in candidates if c.step > chosen.step)
