"""How often a run fails, how long it takes to see and to mend that, and what is left. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.records.account import (
    MICRO,
    TRAINING,
    Account,
    Category,
    IncidentCost,
    Phase,
)
from holdfast_sidecar.records.plan import Incident

SHORTEST_S = 1.0
"""Of a run that is younger, or that nobody saw for longer, no share says anything."""


@dataclass(frozen=True)
class Reliability:
    """None: nothing happened yet by which it could be told. Times in seconds."""

    failures: int = 0
    mtbf_s: float | None = None
    """Of the run's time (waiting for nodes left out), for each failure so far."""
    mttd_s: float | None = None
    """From the first sign of a failure until it was declared, in the mean."""
    mttr_s: float | None = None
    """From the first sign until every rank was stepping again, in the mean."""
    phases_s: dict[str, float] | None = None
    """The same by part of the restart, planned ones too."""


def reliability(
    account: Account, incidents: Collection[Incident], at_unix_s: float | None = None
) -> Reliability:
    """Of the run so far; `incidents` are its own. at_unix_s: until when, by default as written."""
    until_us = account.at_us if at_unix_s is None else round(at_unix_s * MICRO)
    failures = [one for one in incidents if is_failure(one)]
    unplanned = {n: cost for n, cost in account.costs.items() if cost.cause not in PLANNED}
    costs = list(unplanned.values())
    # A Redis that came back empty is told of the account, and not of incidents that are over.
    count = len(failures) + len(unplanned.keys() - {one.identifier for one in incidents})
    queued_us = account.micros.get(Category.QUEUED.value, 0)
    life_s = max(0, until_us - account.began_us - queued_us) / MICRO
    detected = [detect_s(one) for one in failures]
    return Reliability(
        failures=count,
        mtbf_s=life_s / count if count else None,
        mttd_s=_mean(detected),
        mttr_s=_mean([cost.down_us / MICRO for cost in costs]),
        phases_s=phases(account.costs.values()),
    )


def is_failure(incident: Incident) -> bool:
    """Whether something broke, and the job was ended for it: not what people asked for, nor what
    was only seen."""
    return incident.decided in ("restart", "stop") and incident.cause not in PLANNED


def detect_s(incident: Incident) -> float:
    """From the first sign until it was declared."""
    since = incident.since_unix_s or incident.detected_unix_s
    return max(0.0, incident.detected_unix_s - since)


def phases(costs: Collection[IncidentCost]) -> dict[str, float] | None:
    """The mean of each part of a restart, seconds."""
    if not costs:
        return None
    return {
        phase.value: sum(cost.phases.get(phase.value, 0) for cost in costs) / len(costs) / MICRO
        for phase in Phase
    }


def goodput(account: Account) -> float | None:
    """Of the run's time, waiting for nodes left out, what was productive and still stands; what
    waits to be split is left out. None: it is too young, nobody saw it, or no step was ever told
    of, as in a loop without any."""
    return _share(account, account.net_us)


def ettr(account: Account) -> float | None:
    """The same with all time in which the job trained, however well (effective training time)."""
    trained = sum(account.micros.get(category.value, 0) for category in TRAINING)
    return _share(account, trained - account.lost_us)


def burn(share: float | None, objective: float) -> float | None:
    """How fast the budget of bad time is used up: 1 is exactly as fast as it may be. objective: of
    goodput, a part of one."""
    if share is None or not 0.0 <= objective < 1.0:
        return None
    return (1.0 - share) / (1.0 - objective)


def _share(account: Account, part_us: int) -> float | None:
    told_us = sum(account.micros.values()) - account.micros.get(Category.QUEUED.value, 0)
    seen_us = told_us - account.micros.get(Category.UNOBSERVED.value, 0)
    if seen_us < SHORTEST_S * MICRO or not account.has_trained:
        return None
    return max(0.0, part_us / told_us)


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
