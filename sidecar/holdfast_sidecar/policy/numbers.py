"""Whether the job's numbers went wrong for good: what all ranks tell, not what one of them sees.

Where data is shared out, a NaN in one rank's gradients is in everybody's weights a step later. So
the job goes back only once every rank that tells a loss or a gradient norm is ill; one that is
ill alone is told about and watched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy import modes
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import BatchSkip, Incident, Plan
from holdfast_sidecar.records.reports import RankReport

NONFINITE, SPIKE = "nonfinite", "spike"

NEAR_STEPS = 8
"""Onsets so close are the same: a loss from a GPU is told up to eight steps late, and sums that
are done in another order overflow a step sooner or later."""

NOTED_STEPS = 5
"""Where numbers are only told, so often in a row makes them worth a line among the incidents: a
loss scaler and a script that passes over a bad batch meet one or two."""

NO_DIRECTORY = "there is no checkpoint directory"
"""So begins why a job lives with such numbers that saves nowhere."""

SKIPS_KEPT = 16
"""More places to be passed over than a data set that is worth training on has."""


@dataclass(frozen=True)
class Onset:
    """Numbers that are wrong on all ranks that tell any: since which step, and where first."""

    cause: str
    step: int
    first: tuple[int, ...]
    """Ranks that were ill before the others; empty when too many were to blame any."""
    told: int


def find_divergence(
    cluster: Cluster, plan: Plan, settings: Settings, now_unix_s: float
) -> Incident | None:
    """Numbers that are wrong for so long that the job should go back, and can."""
    found = _find(cluster, plan, settings, now_unix_s)
    ranks = cluster.ranks(plan).values()
    if found is None or not can_go_back(cluster, ranks, found.onset_step, settings):
        return None
    return found


def find_left_alone(
    cluster: Cluster, plan: Plan, settings: Settings, now_unix_s: float
) -> Incident | None:
    """Numbers as wrong as that, where the job lives with them: it can't go back, or is not to."""
    numbers = dataclasses.replace(
        settings.numbers,
        nonfinite_steps=settings.numbers.nonfinite_steps or NOTED_STEPS,
        spikes_roll_back=True,
    )
    found = _find(cluster, plan, dataclasses.replace(settings, numbers=numbers), now_unix_s)
    if found is None:
        return None
    why = why_left_alone(cluster, plan, found, settings)
    return dataclasses.replace(found, evidence=[*found.evidence, f"it was left alone: {why}"])


def why_left_alone(cluster: Cluster, plan: Plan, found: Incident, settings: Settings) -> str:
    """Why the job does not go back for these numbers."""
    if found.cause == SPIKE and not settings.numbers.spikes_roll_back:
        return "numbers.spikes_roll_back is off"
    if found.cause == NONFINITE and settings.numbers.nonfinite_steps == 0:
        return "numbers.nonfinite_steps is 0"
    if not settings.checkpoint.dir:
        return f"{NO_DIRECTORY}, so nothing to go back to"
    if not all(rank.state_registered for rank in cluster.ranks(plan).values()):
        return "the script registered no state that could go back"
    return f"there is no checkpoint from before step {found.onset_step} to go back to"


def _find(cluster: Cluster, plan: Plan, settings: Settings, now_unix_s: float) -> Incident | None:
    ranks = cluster.ranks(plan)
    if len(ranks) < plan.world_size:
        return None
    onset = judge(list(ranks.values()), settings)
    if onset is None:
        return None
    nodes = {member.node for member in plan.members for rank in member.ranks if rank in onset.first}
    return Incident(
        "",
        plan.attempt,
        onset.cause,
        min(nodes) if len(nodes) == 1 else "",
        list(onset.first),
        confidence=0.6 if onset.first else 0.9,
        since_unix_s=modes.of_numbers(onset.step, ranks.values(), now_unix_s),
        evidence=[describe(onset)],
        onset_step=onset.step,
        signature=signature(onset, cluster.incidents.values()),
    )


def judge(ranks: Sequence[RankReport], settings: Settings) -> Onset | None:
    """What these reports of all ranks of an attempt come to."""
    numbers = settings.numbers
    telling = [rank for rank in ranks if rank.tells_numbers]
    ill = [rank for rank in telling if rank.onset_step >= 0]
    in_a_row = min((rank.ill_steps for rank in ill), default=0)
    if ill and len(ill) == len(telling) and in_a_row >= numbers.nonfinite_steps > 0:
        return _onset(NONFINITE, {rank.rank: rank.onset_step for rank in ill}, telling)
    # A spike shows on every rank against the noise of its own batches: what the middle one sees.
    spiking = [rank for rank in telling if rank.spike_onset >= 0]
    if numbers.spikes_roll_back and 2 * len(spiking) > len(telling):
        return _onset(SPIKE, {rank.rank: rank.spike_onset for rank in spiking}, telling)
    return None


def can_go_back(
    cluster: Cluster, ranks: Iterable[RankReport], step: int, settings: Settings
) -> bool:
    """Whether there is anything from before to go back to; else a restart would only lose work."""
    return (
        bool(settings.checkpoint.dir)
        and all(rank.state_registered for rank in ranks)
        and any(
            entry.verdict in ("complete", "good") and entry.step < step
            for entry in cluster.ledger.values()
        )
    )


def signature(onset: Onset, earlier: Iterable[Incident]) -> str:
    """What makes two divergences the same: the cause, and the step or one close to it."""
    for incident in earlier:
        is_near = abs(incident.onset_step - onset.step) <= NEAR_STEPS
        if incident.cause == onset.cause and incident.signature and is_near:
            return incident.signature
    what = "not finite" if onset.cause == NONFINITE else "spiking"
    return f"numbers {what} from step {onset.step} on"


def describe(onset: Onset) -> str:
    """In words."""
    what = "not finite" if onset.cause == NONFINITE else "far above usual"
    who = ", ".join(str(rank) for rank in onset.first)
    first = f", first on rank{'s' * (len(onset.first) > 1)} {who}" if who else ""
    whom = f"all {onset.told}" if onset.cause == NONFINITE else f"more than half of {onset.told}"
    where = f"on {whom} ranks that tell any"
    return f"losses or gradients are {what} {where}, from step {onset.step} on{first}"


def add_skip(
    skips: Sequence[BatchSkip], incident: Incident | None, resumed_step: int, settings: Settings
) -> list[BatchSkip]:
    """The batches to pass over in the next attempt: those of before, and around a new onset.

    Half of them lie before it: what spoilt the weights came earlier than the loss that shows it.
    """
    count = settings.numbers.skip_batches
    if incident is None or incident.cause not in (NONFINITE, SPIKE) or incident.onset_step < 1:
        return list(skips)
    if count <= 0:
        return list(skips)
    bad = incident.onset_step - 1  # steps completed when the bad one began
    new = BatchSkip(max(resumed_step, bad - count // 2), count)
    return [*(skip for skip in skips if skip.step != new.step), new][-SKIPS_KEPT:]


def describe_skip(before: Sequence[BatchSkip], after: Sequence[BatchSkip]) -> str:
    """What is passed over from now on that was not before, for people; empty: nothing."""
    new = [skip for skip in after if skip not in before]
    return "".join(
        f"; {skip.count} batches are passed over before step {skip.step}" for skip in new
    )


def _onset(cause: str, since: dict[int, int], telling: Sequence[RankReport]) -> Onset:
    step = min(since.values())
    first = [rank for rank, onset in sorted(since.items()) if onset == step]
    is_few = 2 * len(first) < len(telling)
    return Onset(cause, step, tuple(first) if is_few else (), len(telling))
