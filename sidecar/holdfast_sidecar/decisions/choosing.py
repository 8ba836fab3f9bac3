"""What to resume from after an incident: the newest state, or the newest good one before numbers
went wrong. Storage says what there is and has left out what can't be used at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.losses import exits_of
from holdfast_sidecar.records.agent import Exit
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.records.rank import RankReport

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


def trusted_below(incident: Incident | None) -> float:
    """Snapshots of fewer steps than this may be gone on from; infinite: all, 0: none.

    A loss that was not finite says nothing against the steps before it: a loss scaler passes over
    such a step, and whatever ended the attempt then may have been something else.
    """
    if not is_about_numbers(incident):
        return math.inf
    assert incident is not None
    if incident.cause in ABOUT_NUMBERS or incident.distrusts_from >= 0:
        return 0
    return below_onset(incident.onset_step)


def below_onset(onset_step: int) -> float:
    """The same while an attempt runs: its numbers are not finite since this step; -1: they are."""
    return math.inf if onset_step < 0 else onset_step


def onset_of(told: Iterable[RankReport | Exit]) -> int:
    """The first step of losses that are not finite now, over all these; -1 while all are."""
    return min((one.onset_step for one in told if one.onset_step >= 0), default=-1)


def onset_in(cluster: Cluster, plan: Plan) -> int:
    """The same over the plan's attempt.

    A script that checks its loss may be gone before its sidecar told of it: then its launcher does.
    """
    return onset_of([*cluster.ranks(plan).values(), *exits_of(cluster, plan)])


def choose(candidates: Sequence[Candidate], incident: Incident | None) -> Choice:
    """The order in which to try these, which come newest first and of one branch."""
    if incident is None or not is_about_numbers(incident):
        return Choice(tuple(candidates))
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


def choose_beside(
    snapshot: Candidate | None, candidates: Sequence[Candidate], incident: Incident | None
) -> Choice:
    """The same where a snapshot is tried first. One from before numbers went wrong has the
    checkpoints before it in its past: only those since then are abandoned."""
    choice = choose(candidates, incident)
    if snapshot is None or incident is None or not snapshot.below or choice.obstacle:
        return choice
    since = tuple(c for c in choice.abandoned if c.step >= snapshot.below)
    note = f"{_what(incident)}: back to {snapshot.words}"
    return dataclasses.replace(choice, abandoned=since, note=note)


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
