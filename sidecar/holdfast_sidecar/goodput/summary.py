"""A run's account with all that follows from it, as reports tell it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.goodput import costs
from holdfast_sidecar.goodput.gains import Gain, gains
from holdfast_sidecar.goodput.reliability import Reliability, detect_s, ettr, goodput, reliability
from holdfast_sidecar.goodput.words import CATEGORIES
from holdfast_sidecar.records.account import CLOSED, MICRO, Account, Category, Phase
from holdfast_sidecar.records.plan import Incident


@dataclass(frozen=True)
class Spent:
    """What a run spent on one category."""

    category: str
    seconds: float
    share: float
    """Of the whole run."""
    gpu_hours: float
    money: float | None


@dataclass(frozen=True)
class Billed:
    """One incident and what it cost. Times in seconds; None: not known, or not over yet."""

    identifier: str
    cause: str
    node: str
    """The machine to blame; empty: none."""
    at_unix_s: float
    """The first sign."""
    decided: str
    detect_s: float
    phases_s: dict[str, float]
    """Phase of the restart -> its time, as far as it has gone."""
    down_s: float | None
    lost_s: float | None
    """Training that had to be done again."""
    lost_steps: int | None
    gpu_hours: float | None
    """Standing still and done again, times GPUs."""
    money: float | None


@dataclass(frozen=True)
class Summary:
    """All that a report says of a run's time."""

    began_unix_s: float
    until_unix_s: float
    is_over: bool
    life_s: float
    pending_s: float
    gpus: int
    goodput: float | None
    ettr: float | None
    spent: list[Spent]
    """Of every category that has any time, as people read them."""
    lost_s: float
    lost_gpu_hours: float
    bad_gpu_hours: float
    """All that brought nothing."""
    bad_money: float | None
    lost_by: list[tuple[str, str, costs.Lost]]
    """(cause, node, what it cost), dearest first."""
    billed: list[Billed]
    """Newest first."""
    reliability: Reliability
    gains: list[Gain]
    currency: str = ""


def sum_up(account: Account, incidents: Mapping[str, Incident], price: CostSettings) -> Summary:
    """Of one run. incidents: all that are known of the job."""
    own = costs.of_run(incidents, account)
    lost = costs.lost_work(account.costs.values())
    lost_gpu_s = sum(one.gpu_seconds for one in lost.values())
    bad_gpu_s = costs.bad_gpu_seconds(account)
    by_price = sorted(lost.items(), key=lambda item: -item[1].gpu_seconds)
    return Summary(
        began_unix_s=account.began_us / MICRO,
        until_unix_s=account.at_us / MICRO,
        is_over=account.open == CLOSED,
        life_s=account.total_us / MICRO,
        pending_s=account.pending_us / MICRO,
        gpus=account.gpus,
        goodput=goodput(account),
        ettr=ettr(account),
        spent=_spent(account, price),
        lost_s=account.lost_us / MICRO,
        lost_gpu_hours=lost_gpu_s / costs.HOUR_S,
        bad_gpu_hours=bad_gpu_s / costs.HOUR_S,
        bad_money=costs.price_of(bad_gpu_s, price.per_gpu_hour),
        lost_by=[(cause, node, one) for (cause, node), one in by_price if one.seconds > 0],
        billed=[_bill(one, account, price) for one in reversed(own)],
        reliability=reliability(account, own),
        gains=gains(account),
        currency=price.currency if price.per_gpu_hour > 0 else "",
    )


def plain(summary: Summary) -> dict[str, Any]:
    """The same for scripts: names as in the metrics, seconds, shares as parts of one."""
    return {
        "began_unix_s": summary.began_unix_s,
        "until_unix_s": summary.until_unix_s,
        "is_over": summary.is_over,
        "life_s": summary.life_s,
        "pending_s": summary.pending_s,
        "gpus": summary.gpus,
        "goodput": summary.goodput,
        "ettr": summary.ettr,
        "spent": {one.category: vars(one) for one in summary.spent},
        "lost_s": summary.lost_s,
        "lost_gpu_hours": summary.lost_gpu_hours,
        "bad_gpu_hours": summary.bad_gpu_hours,
        "bad_money": summary.bad_money,
        "currency": summary.currency,
        "lost_by": [
            {"cause": cause, "node": node, **vars(one)} for cause, node, one in summary.lost_by
        ],
        "incidents": [vars(one) for one in summary.billed],
        "reliability": vars(summary.reliability),
        "gains": [vars(one) for one in summary.gains],
    }


def _spent(account: Account, price: CostSettings) -> list[Spent]:
    life_us = account.total_us
    found = []
    for name in CATEGORIES:
        category = Category(name)
        if not account.micros.get(name):
            continue
        gpu_s = account.gpu_seconds(category)
        found.append(
            Spent(
                name,
                account.seconds(category),
                account.micros[name] / life_us if life_us else 0.0,
                gpu_s / costs.HOUR_S,
                costs.price_of(gpu_s, price.per_gpu_hour),
            )
        )
    return found


def _bill(incident: Incident, account: Account, price: CostSettings) -> Billed:
    cost = account.costs.get(incident.identifier)
    seen_s = detect_s(incident)
    if cost is None:
        phases = _under_way(incident, account)
        return Billed(
            *_facts(incident), seen_s, {Phase.DETECT.value: seen_s, **phases}, *(None,) * 5
        )
    gpu_s = (cost.down_us * account.weight + cost.lost_gpu_us) / MICRO
    return Billed(
        *_facts(incident),
        seen_s,
        {name: time_us / MICRO for name, time_us in cost.phases.items()},
        cost.down_us / MICRO,
        cost.lost_us / MICRO,
        cost.lost_steps,
        gpu_s / costs.HOUR_S,
        costs.price_of(gpu_s, price.per_gpu_hour),
    )


def _facts(incident: Incident) -> tuple[str, str, str, float, str]:
    since = incident.since_unix_s or incident.detected_unix_s
    node = costs.blamed_node(incident)
    return (incident.identifier, incident.cause, node, since, incident.decided)


def _under_way(incident: Incident, account: Account) -> dict[str, float]:
    prefix = f"{incident.identifier}:"
    return {
        name[len(prefix) :]: time_us / MICRO
        for name, time_us in account.stages.items()
        if name.startswith(prefix)
    }
