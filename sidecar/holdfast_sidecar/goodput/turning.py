"""The next turn of a run's account, by how the job stands and what its ranks told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast_sidecar.goodput import costs, lost_work, splitting
from holdfast_sidecar.goodput.splitting import Split
from holdfast_sidecar.goodput.stand import Standing
from holdfast_sidecar.goodput.step_times import StepTimes
from holdfast_sidecar.policy.attached import attached_run
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import (
    MICRO,
    PENDING,
    Account,
    Mark,
    spell_cost,
    spell_marks,
)
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.account import Fold, Turn


@dataclass(frozen=True)
class Heard:
    """What the leader knows beside the cluster."""

    now_unix_s: float
    since_s: float = 0.0
    """Since the account was turned last."""
    times: StepTimes | None = None
    """Steps that were told of since then."""
    newest: StepTimes | None = None
    """The newest that were told of in this attempt; None: none, or not to this leader."""
    toll_s: float | None = None
    """See splitting.toll_of."""
    step_split: int = -1
    """Step that ranks had completed when time was split in the last turn; -1: it was not."""


def next_turn(account: Account | None, standing: Standing, cluster: Cluster, heard: Heard) -> Turn:
    """What is to be done now. `account` is None for a run that has none yet."""
    fields = {
        "run": standing.run,
        "attempt": str(standing.attempt),
        "nodes": str(standing.nodes),
    }
    if standing.open == PENDING:
        fields["weight"] = str(standing.gpus)
    if account is None:
        return Turn(standing.open, standing.stage, standing.gpus, standing.is_anew, fields=fields)
    split = _split(account, standing, cluster, heard)
    marks = _marked(account, heard.step_split)
    folds, marks = _folded(account, marks, cluster)
    if standing.open == PENDING and not marks:
        marks = (Mark(_resumed(_ranks(cluster)), account.net_us),)
    if marks != account.marks:
        fields["marks"] = spell_marks(marks)
    return Turn(
        standing.open,
        standing.stage,
        standing.gpus,
        moves=split.moves,
        shares=split.shares,
        fields={**fields, **_noted(split, account)},
        folds=folds,
    )


def is_split_at_step(turn: Turn) -> bool:
    """Whether it puts time down to categories while training goes on."""
    return "split" in turn.fields


def completed(cluster: Cluster) -> int:
    """Steps that all ranks have completed."""
    return min((rank.step for rank in _ranks(cluster)), default=0)


def _split(account: Account, standing: Standing, cluster: Cluster, heard: Heard) -> Split:
    if not account.is_training:
        return Split()
    is_same = (account.attempt, account.run) == (standing.attempt, standing.run)
    if standing.open != PENDING or not is_same:
        incident = _ending(cluster, account.attempt)
        return splitting.at_attempts_end(account, heard.newest, incident, heard.now_unix_s)
    made = completed(cluster) - _resumed(_ranks(cluster))
    if heard.times is not None:
        return splitting.at_steps_end(account, heard.times, made, heard.since_s, heard.toll_s)
    waits_s = account.pending_us / MICRO
    if heard.newest is None and splitting.is_untold(made, waits_s):
        return splitting.all_productive()
    return Split()


def _noted(split: Split, account: Account) -> Mapping[str, str]:
    noted = {"split": str(account.attempt)} if split.is_at_step else {}
    return noted if split.toll_us is None else {**noted, "toll": str(split.toll_us)}


def _marked(account: Account, step: int) -> tuple[Mark, ...]:
    """The account's marks, with what stands at the step up to which time was split last."""
    if step < 0 or not account.is_training:
        return account.marks
    return lost_work.with_mark(account.marks, Mark(step, account.net_us))


def _folded(
    account: Account, marks: tuple[Mark, ...], cluster: Cluster
) -> tuple[tuple[Fold, ...], tuple[Mark, ...]]:
    """Incidents that are over since, and the marks after them. Of several that one restart ended
    the first has lost the work: nothing was done between them."""
    over = [
        one
        for one in costs.of_run(cluster.incidents, account)
        if costs.is_over(one) and one.identifier not in account.costs
    ]
    over.sort(key=lambda one: (one.attempt, one.detected_unix_s))
    first = next((one for one in over if one.recovered_unix_s), None)
    folds, lost_us, lost_steps = [], 0, 0
    if first is not None:
        reached = Mark(first.step_reached, account.net_us)
        stands = lost_work.net_at(marks, first.step_resumed, reached)
        lost_us = account.net_us - stands
        lost_steps = max(0, first.step_reached - first.step_resumed)
        if marks:  # else no step was seen yet, and the first to be seen begins them
            marks = lost_work.gone_back(marks, first.step_resumed, stands)
    for incident in over:
        lost = (lost_us, lost_steps) if incident is first else (0, 0)
        cost = costs.cost_of(incident, lost[0], account.weight, lost[1])
        folds.append(Fold(incident.identifier, *spell_cost(cost)))
    return tuple(folds), marks


def _ending(cluster: Cluster, attempt: int) -> Incident | None:
    """The incident that ended this attempt, or is being dealt with in it."""
    own = [one for one in cluster.incidents.values() if one.attempt == attempt]
    unfinished = [one for one in own if not one.recovered_unix_s]
    return max(unfinished, key=lambda one: one.detected_unix_s, default=None)


def _ranks(cluster: Cluster) -> Collection[RankReport]:
    plan: Plan | None = cluster.plan or attached_run(cluster)
    return () if plan is None else cluster.ranks(plan).values()


def _resumed(ranks: Collection[RankReport]) -> int:
    return max((rank.resumed_step for rank in ranks), default=0)
