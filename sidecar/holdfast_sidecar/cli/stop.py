"""`holdfast stop`: writes the request and watches until the job has ended."""

from __future__ import annotations

import getpass
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import click

from holdfast import environment
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import span
from holdfast_sidecar.configuration import Effective, read_seconds
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import (
    CheckpointOrder,
    NodeReport,
    Plan,
    Request,
    decode,
    encode,
)
from holdfast_sidecar.coordination.store import Store, StoreUnavailable, View
from holdfast_sidecar.standing import ENDED, exists

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--save", is_flag=True, help="Make a checkpoint first (needs the three lines).")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for the end.")
@settings_options
def stop(effective: Effective, job: str | None, save: bool, timeout: str) -> None:
    """Stop a job on all its nodes, and wait until it has ended.

    \b
      holdfast stop
      holdfast stop --save --job chargpt

    \b
    Exit code: 0 the job has ended
               1 it has not within the time
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    try:
        _ask(found, store, save)
        ended = watch(store, found, patience_s, click.echo)
    finally:
        store.close()
    if ended is None:
        click.echo(f"holdfast: job {found.job} has not ended within {span(patience_s)}", err=True)
        sys.exit(1)
    click.echo(ended)


def _ask(found: FoundJob, store: Store, save: bool) -> None:
    request = Request(
        identifier=uuid.uuid4().hex[:12],
        kind="stop",
        by=f"{getpass.getuser()}@{socket.gethostname()}",
        at_unix_s=time.time(),
        save_first=save,
    )
    try:
        view = store.read()
        if not exists(view):
            raise store_away.unknown(found)
        if plan_of(view).state not in ENDED:
            store.report(Section.REQUESTS, request.identifier, encode(request))
    except StoreUnavailable as error:
        raise store_away.explanation(found, error) from None


def watch(
    store: Store, found: FoundJob, patience_s: float, say: Callable[[str], object]
) -> str | None:
    """Tell what changes until the job has ended; how it did, or None when time is over."""
    end_s = time.monotonic() + patience_s
    told = ""
    while True:
        try:
            progress = look(store.read())
        except StoreUnavailable as error:
            if found.server_is_gone():
                return f"job {found.job} has ended, and its own Redis with it"
            progress = Progress(f"waiting for Redis at {found.where} ({error})")
        if progress.has_ended:
            return f"job {found.job} has ended: {progress.what}"
        if progress.what != told:
            told = progress.what
            say(f"{told} …")
        if time.monotonic() >= end_s:
            return None
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


@dataclass(frozen=True)
class Progress:
    """How far the job is on its way to its end."""

    what: str
    has_ended: bool = False


def look(view: View) -> Progress:
    """The progress that the store shows."""
    plan = plan_of(view)
    if plan.state in ENDED:
        return Progress(plan.message or plan.state, has_ended=True)
    if not view.lease.candidate:
        return Progress("nobody leads yet; the request waits for a leader")
    order = decode(CheckpointOrder, view.section(Section.CHECKPOINT).get("current", ""))
    if order is not None and order.state == "armed":
        saved = _ranks_saved(view, order.identifier)
        return Progress(f"saving at step {order.step}: {saved} of {plan.world_size} ranks done")
    return Progress(f"stopping attempt {plan.attempt}, {plan.world_size} ranks")


def plan_of(view: View) -> Plan:
    """The plan; before there is one, that of an attempt which is still waiting."""
    plan = decode(Plan, view.section(Section.PLAN).get("current", ""))
    return plan or Plan(attempt=0, epoch=0, state="waiting")


def _ranks_saved(view: View, identifier: str) -> int:
    reports = (decode(NodeReport, text) for text in view.section(Section.NODES).values())
    parts = [report.saved for report in reports if report is not None and report.saved is not None]
    return sum(
        list(part.states.values()).count("saved") for part in parts if part.identifier == identifier
    )
