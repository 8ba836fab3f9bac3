"""`holdfast checkpoint now`: asks the job's leader for one, and follows it until it is there."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from holdfast_sidecar.cli.asking import ask
from holdfast_sidecar.cli.checkpoint.options import job_option, json_option
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import span
from holdfast_sidecar.configuration import Effective, read_seconds
from holdfast_sidecar.coordination.keys import CURRENT, Section
from holdfast_sidecar.coordination.reports import (
    TERMINAL,
    CheckpointOrder,
    LedgerEntry,
    Plan,
    decode,
)
from holdfast_sidecar.coordination.store import Store, StoreUnavailable, View

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""


@click.command("now")
@job_option
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for it.")
@json_option
@settings_options
def now_command(effective: Effective, job: str | None, timeout: str, as_json: bool) -> None:
    """Ask a running job for a checkpoint now, and wait until it is complete.

    \b
      holdfast checkpoint now
      holdfast checkpoint now --job chargpt --json

    \b
    Exit code: 0 it is complete
               1 it came to nothing (the reason is printed), or not in time
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    say = (lambda _: None) if as_json else click.echo
    try:
        outcome = watch(store, found, ask(found, store, "checkpoint"), patience_s, say)
    finally:
        store.close()
    if as_json:
        click.echo(json.dumps(asdict(outcome)))
    elif outcome.is_complete:
        click.echo(f"checkpoint {outcome.identifier} at step {outcome.step}: {outcome.path}")
    else:
        click.echo(f"holdfast: no checkpoint: {outcome.reason}", err=True)
    sys.exit(0 if outcome.is_complete else 1)


@dataclass(frozen=True)
class Outcome:
    """What became of a request."""

    is_complete: bool
    identifier: str = ""
    step: int = 0
    path: str = ""
    reason: str = ""


def watch(
    store: Store,
    found: FoundJob,
    request: str,
    patience_s: float,
    say: Callable[[str], object],
) -> Outcome:
    """Tell what changes until the request was met or refused."""
    end_s = time.monotonic() + patience_s
    told = ""
    while True:
        try:
            state = look(store.read(), request)
        except StoreUnavailable as error:
            if found.server_is_gone():
                return Outcome(False, reason=f"job {found.job} has ended")
            state = f"waiting for Redis at {found.where} ({error})"
        if isinstance(state, Outcome):
            return state
        if state != told:
            told = state
            say(f"{told} …")
        if time.monotonic() >= end_s:
            return Outcome(False, reason=f"not within {span(patience_s)} (last: {told})")
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


def look(view: View, request: str) -> Outcome | str:
    """What became of the request, or how far it is."""
    ledger = (decode(LedgerEntry, text) for text in view.section(Section.LEDGER).values())
    for entry in ledger:
        if entry is not None and entry.requested_by == request:
            return Outcome(True, entry.identifier, entry.step, entry.path)
    order = decode(CheckpointOrder, view.section(Section.CHECKPOINT).get(CURRENT, ""))
    waiting = request in view.section(Section.REQUESTS)
    if order is not None and order.requested_by == request:
        if order.state == "complete":
            return Outcome(True, order.identifier, order.step, order.path)
        if order.state == "armed":
            return f"saving at step {order.step}"
        if not waiting:
            return Outcome(False, order.identifier, order.step, reason=order.reason)
        return f"again: {order.reason}"
    plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
    if plan is not None and plan.state in TERMINAL:
        return Outcome(False, reason="the job has ended")
    if not waiting:
        return Outcome(False, reason="the request was dropped")
    if not view.lease.candidate:
        return "nobody leads yet; the request waits for a leader"
    return "waiting for all ranks to be stepping"
