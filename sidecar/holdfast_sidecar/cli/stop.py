"""`holdfast stop`: a checkpoint if wanted, then the request, then watching until the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from holdfast import environment
from holdfast_sidecar.cli import checkpoint
from holdfast_sidecar.cli.asking import ask, look_up
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import span
from holdfast_sidecar.configuration import Effective, read_seconds
from holdfast_sidecar.coordination.keys import CURRENT, Section
from holdfast_sidecar.coordination.reports import TERMINAL, Plan, decode
from holdfast_sidecar.coordination.store import Store, StoreUnavailable, View

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
               1 it has not within the time, or (with --save) there is no checkpoint
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    try:
        if plan_of(look_up(found, store)).state not in TERMINAL:
            if save:
                _save(store, found, patience_s)
            ask(found, store, "stop")
        ended = watch(store, found, patience_s, click.echo)
    finally:
        store.close()
    if ended is None:
        click.echo(f"holdfast: job {found.job} has not ended within {span(patience_s)}", err=True)
        sys.exit(1)
    click.echo(ended)


def _save(store: Store, found: FoundJob, patience_s: float) -> None:
    """A checkpoint first; without one the job goes on, as nothing can be undone afterwards."""
    saved = checkpoint.watch(store, found, ask(found, store, "checkpoint"), patience_s, click.echo)
    if not saved.is_complete:
        click.echo(
            f"holdfast: job {found.job} was not stopped, as there is no checkpoint: {saved.reason} "
            "(without --save it is stopped all the same)",
            err=True,
        )
        sys.exit(1)
    click.echo(f"saved at step {saved.step}: {saved.path}")


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
    if plan.state in TERMINAL:
        return Progress(plan.message or plan.state, has_ended=True)
    if not view.lease.candidate:
        return Progress("nobody leads yet; the request waits for a leader")
    if plan.state == "waiting":
        return Progress("stopping before the first attempt")
    return Progress(f"stopping attempt {plan.attempt}, {plan.world_size} ranks")


def plan_of(view: View) -> Plan:
    """The plan; before there is one, that of an attempt which is still waiting."""
    plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
    return plan or Plan(attempt=0, epoch=0, state="waiting")
