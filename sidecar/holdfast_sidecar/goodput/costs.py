"""What the incidents of a run cost, in time and in money: by cause, by node, one by one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast_sidecar.policy.attached import END, LEAVE
from holdfast_sidecar.records.account import MICRO, Account, Category, IncidentCost, Phase
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
