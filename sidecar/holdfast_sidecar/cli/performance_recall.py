"""How well a job's steps go, from its store; from what this machine kept where that is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.recollection import AWAY, from_memory, remember, remember_incidents
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.export.job_record import JobRecord, losses_before, newest_ended, read_record
from holdfast_sidecar.export.status import attached_plan, exists
from holdfast_sidecar.incidents.storage import read_incidents
from holdfast_sidecar.performance.summary import see
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.account import Account, parse_account
from holdfast_sidecar.records.plan import TERMINAL, Incident
from holdfast_sidecar.records.reports import Losses, Performance
from holdfast_sidecar.store.protocol import View


@dataclass(frozen=True)
class Recalled:
    """A job's performance. `remark` says when it is this machine's memory only."""

    job: str
    performance: Performance | None
    """None: nothing was ever told of its steps."""
    is_over: bool
    before: Losses = field(default_factory=Losses)
    """Of runs before this one, as far as this machine kept them."""
    remark: str = ""
    attempt: int = -1
    """The one under way; -1: none is."""
    is_of_earlier_run: bool = False
    """Of this run nothing is known yet: what is told is of the one before."""
    account: Account | None = None
    """Where the run's time went; None: nobody has told."""
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    """All that are known of the job."""


def recall_performance(effective: Effective, job: str | None) -> Recalled:
    """Raises what `find_job` and the store do where nothing was kept here either."""
    root = state_root(effective.settings.paths)
    try:
        found = find_job(effective, job)
        view = store_away.read_view(found)
        if not exists(view):
            raise store_away.unknown(found)
    except AWAY as error:
        state = newest_ended(root) if job is None else root / job
        kept = None if state is None else read_record(state)
        if state is None or kept is None:
            raise
        is_over = remember(state.name, kept, error).is_over
        return _remembered(state, kept[0], is_over, from_memory(state.name, error))
    cluster = parse_cluster(view)
    live = _live(found, view)
    if cluster.account is None:
        return live
    known = remember_incidents(cluster, found.state).incidents
    return dataclasses.replace(live, account=cluster.account, incidents=known)


def _live(found: FoundJob, view: View) -> Recalled:
    cluster = parse_cluster(view)
    plan = cluster.plan or attached_plan(view)
    kept = read_record(found.state)
    record = None if kept is None else kept[0]
    if plan is None:
        return Recalled(found.job, None, is_over=False)
    attempt = -1 if plan.state in TERMINAL else plan.attempt
    seen = see(plan, list(cluster.nodes.values()), view.lease.candidate)
    is_over = plan.state in TERMINAL
    before = Losses() if record is None else losses_before(record, plan.began_unix_s)
    is_told = seen.standing is not None and plan.state not in TERMINAL
    if not is_told and record is not None and record.performance is not None:
        # A new leader has judged nothing yet, this run has only begun, or the ranks have left.
        return Recalled(
            found.job,
            record.performance,
            is_over,
            before,
            attempt=attempt,
            is_of_earlier_run=record.performance.began_unix_s != plan.began_unix_s,
        )
    return Recalled(found.job, seen, is_over, before, attempt=attempt)


def _remembered(state: Path, record: JobRecord, is_over: bool, remark: str) -> Recalled:
    performance = record.performance
    is_earlier = performance is not None and performance.began_unix_s != record.began_unix_s
    recalled = Recalled(
        state.name, performance, is_over, record.losses_before, remark, is_of_earlier_run=is_earlier
    )
    incidents = {one.identifier: one for one in read_incidents(state)}
    return dataclasses.replace(recalled, account=parse_account(record.account), incidents=incidents)
