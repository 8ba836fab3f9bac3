"""Asking a job's leader for something: writes the request that it will see.

What ends or holds a job is asked for by its name, or after a look at it: another job may be the
only one that is seen from here.
"""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from holdfast_sidecar.cli import find_job
from holdfast_sidecar.cli.find_job import FoundJob
from holdfast_sidecar.cli.tables import ProgressLine
from holdfast_sidecar.config.paths import user_name
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.status import attached_plan, exists
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Plan, Request
from holdfast_sidecar.store.protocol import Section, Store, StoreUnavailable, View

SHOWN_NODES = 4
"""Named of a large job: enough to know it by."""

yes_option = click.option(
    "--yes", is_flag=True, help="Without --job: don't ask whether the only job is the one meant."
)


def look_up(found: FoundJob, store: Store) -> View:
    """The job as it is now; NoSuchJob, or what `store_away` says of a store that is away."""
    try:
        view = store.read()
    except StoreUnavailable as error:
        raise find_job.explanation(found, error) from None
    if not exists(view):
        raise find_job.unknown(found)
    return view


def confirm_job(found: FoundJob, view: View, is_named: bool, what: str) -> None:
    """Show whose job it is and what of it runs; where it was not named, ask on a terminal whether
    to do `what` to it. BadInput where nobody can be asked."""
    line = describe(found, view)
    if is_named:
        click.echo(line, err=True)
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(
            f"name the job with --job, to {what} it ({line}): there is nobody to ask here"
        )
    click.echo(line, err=True)
    if not click.confirm(f"{what} it?", default=False, err=True):
        click.echo("holdfast: nothing was done", err=True)
        sys.exit(1)


def describe(found: FoundJob, view: View) -> str:
    """The job, its owner and its ranks, in a line."""
    cluster = parse_cluster(view)
    owners = sorted({owner for a in cluster.agents.values() if (owner := a.command.get("user"))})
    named = f"job {found.job}" + (f" of {', '.join(owners)}" if owners else "")
    if (plan := cluster.plan) is None or plan.state in TERMINAL:
        return f"{named}: no rank runs"
    nodes = ", ".join(member.node for member in plan.members[:SHOWN_NODES])
    more = len(plan.members) - SHOWN_NODES
    nodes += f" and {more} more nodes" if more > 0 else ""
    return f"{named}, attempt {plan.attempt}: {plan.world_size} ranks on {nodes}"


def ask(
    found: FoundJob,
    store: Store,
    kind: str,
    reason: str = "",
    for_s: float = 0.0,
    node: str = "",
    is_forced: bool = False,
    of_watched: bool = False,
    **more: Any,
) -> str:
    """Write a request of this kind; answers its identifier. Errors as in `look_up`.

    of_watched: a job that is only watched can be asked for it, too. more: further fields of a
    Request.
    """
    if attached_plan(look_up(found, store)) is not None and not of_watched:
        raise BadInput(
            f"job {found.job} is only watched here (holdfast attach): ask whoever launched it"
        )
    request = Request(
        identifier=uuid.uuid4().hex[:12],
        kind=kind,
        by=f"{user_name()}@{socket.gethostname()}",
        at_unix_s=time.time(),
        reason=reason,
        for_s=for_s,
        node=node,
        is_forced=is_forced,
        **more,
    )
    try:
        store.report(Section.REQUESTS, request.identifier, encode(request))
    except StoreUnavailable as error:
        raise find_job.explanation(found, error) from None
    return request.identifier


# Following what was asked of a job's leader until it is so, or was refused.

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
        raise find_job.explanation(found, error) from None


def refuse(found: FoundJob, what: str, why: str) -> NoReturn:
    """One line and exit code 1."""
    click.echo(f"holdfast: job {found.job} was not {what}: {why}", err=True)
    sys.exit(1)


def _waits(state: Settled | str, leader: str) -> bool:
    return isinstance(state, str) and not leader
