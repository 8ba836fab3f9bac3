"""Following what was asked of a job's leader until it is so, or was refused."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import click

from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.asking import look_up
from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.cli.progress import ProgressLine
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.store.protocol import Section, Store, StoreUnavailable

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""

LOST = "the coordination server has lost the request, as after a restart: ask again"


@dataclass(frozen=True)
class Settled:
    """What became of a wish, in words."""

    is_so: bool
    words: str


def running_plan(found: FoundJob, store: Store) -> Plan:
    """The plan of a job that something can be asked of; ClickException when it has ended or has
    not begun, and what `look_up` raises."""
    plan = parse_cluster(look_up(found, store)).plan
    if plan is None or plan.state in TERMINAL:
        how = "has not begun" if plan is None else f"has ended: {plan.message or plan.state}"
        raise click.ClickException(f"job {found.job} {how}")
    return plan


def at_end(cluster: Cluster) -> Settled | None:
    """Nothing more becomes of a wish once the job has ended."""
    plan = cluster.plan
    if plan is None or plan.state not in TERMINAL:
        return None
    return Settled(False, f"it has ended: {plan.message or plan.state}")


def follow(
    store: Store,
    found: FoundJob,
    look: Callable[[Cluster], Settled | str],
    patience_s: float,
    end: Callable[[Cluster], Settled | None] = at_end,
) -> Settled:
    """Look again and again, and tell how far it is on a terminal. end: what the job's end makes of
    the wish; None: it has not ended."""
    end_s = time.monotonic() + patience_s
    progress = ProgressLine(sys.stderr)
    try:
        while True:
            try:
                view = store.read()
                state = end(parse_cluster(view)) or look(parse_cluster(view))
                state = "waiting for a leader" if _waits(state, view.lease.candidate) else state
            except StoreUnavailable as error:
                if found.server_is_gone():
                    return Settled(False, "it has ended")
                state = f"waiting for Redis at {found.where} ({error})"
            if isinstance(state, Settled):
                return state
            progress.tell(state)
            if time.monotonic() >= end_s:
                return Settled(False, f"not within {span(patience_s)} (last: {state})")
            store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))
    finally:
        progress.close()


def take_back(store: Store, found: FoundJob, request: str) -> None:
    """Withdraw what nobody waits for any more."""
    try:
        store.report(Section.REQUESTS, request, None)
    except StoreUnavailable as error:
        raise store_away.explanation(found, error) from None


def refuse(found: FoundJob, what: str, why: str) -> NoReturn:
    """One line and exit code 1."""
    click.echo(f"holdfast: job {found.job} was not {what}: {why}", err=True)
    sys.exit(1)


def _waits(state: Settled | str, leader: str) -> bool:
    return isinstance(state, str) and not leader
