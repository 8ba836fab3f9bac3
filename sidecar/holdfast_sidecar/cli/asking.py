"""Asking a job's leader for something: writes the request that it will see.

What ends or holds a job is asked for by its name, or after a look at it: another job may be the
only one that is seen from here.
"""

from __future__ import annotations

import socket
import sys
import time
import uuid
from typing import Any

import click

from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob
from holdfast_sidecar.config.paths import user_name
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.status import attached_plan, exists
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import TERMINAL, Request
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
        raise store_away.explanation(found, error) from None
    if not exists(view):
        raise store_away.unknown(found)
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
        raise store_away.explanation(found, error) from None
    return request.identifier
