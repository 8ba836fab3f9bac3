"""A run's account with all that follows from it, as reports tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.goodput import costs
from holdfast_sidecar.performance.goodput.costs import (
    Reliability,
    detect_s,
    ettr,
    goodput,
    reliability,
)
from holdfast_sidecar.records.account import CLOSED, MICRO, PENDING, Account, Category, Phase
from holdfast_sidecar.records.plan import Incident

# What would bring most: where a run's time goes that could have been productive, largest first.
#
# What it says to do about each is what can be done at all, in words; whether it pays is for people.
# Pure.

LEAST_SHARE = 0.005
"""Below half a percent of the run nothing is worth the trouble."""

ADVICE = {
    Category.INIT: "start processes faster: local images and imports, fewer things before the"
    " group is formed",
    Category.SETUP: "building the model, reading the data's index: what the script does each"
    " time it starts",
    Category.WARMUP: "keep compile caches (`TORCHINDUCTOR_CACHE_DIR`) between attempts",
    Category.RESTORE: "snapshots and peer copies are read from memory, checkpoints from storage",
    Category.DATA_WAIT: "more loader workers, prefetching, or data on faster storage",
    Category.SAVING: "save more seldom; a script that lacks the three lines: with them snapshots"
    " are written down behind the loop's back",
    Category.EVALUATING: "evaluate more seldom, on less, or beside the training",
    Category.COMPILING: "shapes that change make torch.compile start over: mark them dynamic, or"
    " pad",
    Category.STRAGGLER: "`holdfast explain --slow` names who is slow and why",
    Category.HANG_UNDETECTED: "hangs are declared by what the job's history allows: see"
    " `holdfast doctor` for the timeouts in force",
    Category.DRAINING: "`policy.evidence_timeout_s`, and what the script does when it is asked"
    " to go",
    Category.RESTART: "fewer failures, spares that wait warm, or a faster start",
    Category.PAUSED: "people's own time",
    Category.UNOBSERVED: "nobody saw the job then: a store or leader that was away for long",
}

LOST = "lost"
"""Name of the gain by losing less work."""

LOST_ADVICE = "save more often: `holdfast checkpoint plan`, snapshots and peer copies cost least"


@dataclass(frozen=True)
class Gain:
    """Without it the run would have been so much shorter."""

    what: str
    """A category's value, or LOST."""
    seconds: float
    share: float
    """Of the run, waiting for nodes left out."""
    advice: str


def gains(account: Account) -> list[Gain]:
    """The largest first; what is too small to speak of is left out."""
    life_us = sum(account.micros.values()) - account.micros.get(Category.QUEUED.value, 0)
    found = (gain for gain in _all(account, life_us) if gain.share >= LEAST_SHARE)
    return sorted(found, key=lambda gain: -gain.seconds)


def _all(account: Account, life_us: int) -> Iterator[Gain]:
    if life_us <= 0:
        return
    for category, advice in ADVICE.items():
        spent = account.micros.get(category.value, 0)
        yield Gain(category.value, spent / MICRO, spent / life_us, advice)
    yield Gain(LOST, account.lost_us / MICRO, account.lost_us / life_us, LOST_ADVICE)


# What categories, phases and costs are called where people read of them: in reports, in the
# terminal and on the page. Pure.

CATEGORIES = {
    Category.PRODUCTIVE.value: "productive steps",
    Category.DATA_WAIT.value: "waiting for data",
    Category.SAVING.value: "saving",
    Category.EVALUATING.value: "evaluating",
    Category.COMPILING.value: "compiling",
    Category.STRAGGLER.value: "waiting for somebody slow",
    Category.WARMUP.value: "first steps",
    Category.INIT.value: "processes start",
    Category.SETUP.value: "before the first step",
    Category.RESTORE.value: "reading state back",
    Category.HANG_UNDETECTED.value: "standing, not yet seen",
    Category.DRAINING.value: "ending ranks",
    Category.RESTART.value: "restarting",
    Category.PAUSED.value: "paused by a person",
    Category.QUEUED.value: "waiting for nodes",
    Category.UNOBSERVED.value: "nobody saw",
    Category.OTHER.value: "other",
}
"""In the order in which they are shown: the good one first, then what training itself spends, then
starts, then faults."""

PHASES = {
    Phase.DETECT.value: "detect",
    Phase.DRAIN.value: "drain",
    Phase.RENDEZVOUS.value: "rendezvous",
    Phase.RESTORE.value: "restore",
    Phase.FIRST_STEP.value: "first step",
}

PENDING_WORDS = "steps under way"
"""What waits to be split."""


IN_VIEWS = {**CATEGORIES, PENDING: PENDING_WORDS}
"""All that a live view's account may have."""


def name_category(name: str) -> str:
    """A category of a view, which a newer sidecar may have told."""
    return IN_VIEWS.get(name, name)


def name_gain(what: str) -> str:
    """What a gain is about."""
    return CATEGORIES.get(what, "work done again" if what == "lost" else what)


@dataclass(frozen=True)
class CategoryTime:
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
    spent: list[CategoryTime]
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


def _spent(account: Account, price: CostSettings) -> list[CategoryTime]:
    life_us = account.total_us
    found = []
    for name in CATEGORIES:
        category = Category(name)
        if not account.micros.get(name):
            continue
        gpu_s = account.gpu_seconds(category)
        found.append(
            CategoryTime(
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
