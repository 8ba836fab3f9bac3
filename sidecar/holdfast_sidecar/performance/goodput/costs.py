"""What the incidents of a run cost, in time and in money: by cause, by node, one by one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast_sidecar.policy.attached import END, LEAVE
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

HOUR_S = 3600.0

CLOCKS_APART_S = 5.0
"""A run's begin is told by one leader's clock, an incident's by another's."""


@dataclass(frozen=True)
class Lost:
    """Training that had to be done again."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    steps: int = 0

    def with_more(self, cost: IncidentCost) -> Lost:
        """This incident's too."""
        return Lost(
            self.seconds + cost.lost_us / MICRO,
            self.gpu_seconds + cost.lost_gpu_us / MICRO,
            self.steps + cost.lost_steps,
        )


def lost_work(costs: Collection[IncidentCost]) -> dict[tuple[str, str], Lost]:
    """(cause, node) -> what it cost; an empty node: no machine is to blame."""
    sums: dict[tuple[str, str], Lost] = {}
    for cost in costs:
        key = (cost.cause, cost.node)
        sums[key] = sums.get(key, Lost()).with_more(cost)
    return sums


def of_run(incidents: Mapping[str, Incident], account: Account) -> list[Incident]:
    """Those of this run, oldest first: the store keeps them longer."""
    since = began_unix_s(account) - CLOCKS_APART_S
    own = (one for one in incidents.values() if one.detected_unix_s >= since)
    return sorted(own, key=lambda one: one.detected_unix_s)


def began_unix_s(account: Account) -> float:
    """When the run began: its first attempt was opened, or else when it was first looked at."""
    try:
        return float(account.run)
    except ValueError:
        return account.began_us / MICRO


def is_over(incident: Incident) -> bool:
    """Whether nothing more will be known of what it cost."""
    if incident.decided == "stop":
        return True
    return bool(incident.recovered_unix_s) and incident.decided in ("restart", LEAVE, END)


def cost_of(incident: Incident, lost_us: int, gpus: int, lost_steps: int) -> IncidentCost:
    """What is written down of it once it is over; the account knows the other phases."""
    since = incident.since_unix_s or incident.detected_unix_s
    detect_us = max(0, round((incident.detected_unix_s - since) * MICRO))
    return IncidentCost(
        {Phase.DETECT.value: detect_us},
        lost_us,
        lost_us * gpus,
        lost_steps,
        incident.cause,
        blamed_node(incident),
    )


def blamed_node(incident: Incident) -> str:
    """The machine that it is billed to: none for a script's own bug, nor for what people wanted."""
    return "" if incident.is_of_script else incident.culprit_node


def bad_gpu_seconds(account: Account) -> float:
    """GPU time that brought nothing: all but productive time, and what of that was lost."""
    productive = Category.PRODUCTIVE.value
    bad_us = sum(
        amount
        for category, amount in account.gpu_micros.items()
        if category not in (productive, Category.QUEUED.value)
    )
    return (bad_us + sum(cost.lost_gpu_us for cost in account.costs.values())) / MICRO


def price_of(gpu_seconds: float, per_gpu_hour: float) -> float | None:
    """In money; None: nobody said what an hour of a GPU costs."""
    return gpu_seconds / HOUR_S * per_gpu_hour if per_gpu_hour > 0 else None


# How often a run fails, how long it takes to see and to mend that, and what is left. Pure.

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
