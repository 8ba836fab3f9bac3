"""`holdfast checkpoint`: ask for one now, list what there is, verify every byte."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from holdfast import environment
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.checkpoints.directory import read_key
from holdfast_sidecar.checkpoints.ledger import Kept, candidates, read_ledger, torn_directories
from holdfast_sidecar.checkpoints.manifest import verify_hashes
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.asking import ask
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoSuchJob, find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import BAD, DOUBTFUL, GOOD, paint, size, span, table
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
from holdfast_sidecar.job_record import read_record
from holdfast_sidecar.places import state_root
from holdfast_sidecar.preflight import key_problem

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""

job_option = click.option(
    "--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")
dir_option = click.option(
    "--dir", "given", metavar="DIR", help="Default: checkpoint.dir, else where the job saves."
)


@click.group(invoke_without_command=True)
@job_option
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for it.")
@json_option
@settings_options
@click.pass_context
def checkpoint(
    context: click.Context, effective: Effective, job: str | None, timeout: str, as_json: bool
) -> None:
    """Ask a running job for a checkpoint now, and wait until it is complete.

    \b
      holdfast checkpoint
      holdfast checkpoint --job chargpt --json
      holdfast checkpoint list
      holdfast checkpoint verify

    \b
    Exit code: 0 it is complete
               1 it came to nothing (the reason is printed), or not in time
               2 something you gave is wrong
               3 there is no such job
    """
    if context.invoked_subcommand is not None:
        return
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


@checkpoint.command("list")
@job_option
@dir_option
@json_option
@settings_options
def list_checkpoints(
    effective: Effective, job: str | None, given: str | None, as_json: bool
) -> None:
    """List the checkpoints on storage, newest first, and which one a restart would try first.

    \b
    `resume` column: the order in which a restart would try them; empty: it would not.
    """
    root = _root(effective, job, given)
    kept = _read(root, job, effective)
    order = {c.identifier: n for n, c in enumerate(candidates(kept), 1)}
    with _storage(root):
        torn = [path.name for path in torn_directories(root)]
    if as_json:
        rows = [{**asdict(k.entry()), "resume": order.get(k.identifier)} for k in kept]
        click.echo(json.dumps({"dir": str(root), "checkpoints": rows, "torn": torn}, indent=2))
        return
    if not kept:
        click.echo(f"no checkpoint in {root}")
    else:
        headings = ("resume", "step", "attempt", "size", "ranks", "age", "state", "name")
        now = time.time()
        lines = [_row(k, order.get(k.identifier), now) for k in kept]
        click.echo(table(headings, lines))
    if torn:
        click.echo(f"not sealed (torn, or being written now): {', '.join(torn)}")


@checkpoint.command("verify")
@click.argument("names", nargs=-1, metavar="[STEP|IDENTIFIER]...")
@job_option
@dir_option
@json_option
@settings_options
def verify_checkpoints(
    effective: Effective,
    names: tuple[str, ...],
    job: str | None,
    given: str | None,
    as_json: bool,
) -> None:
    """Read every byte of these checkpoints (default: all) and compare it with the manifest.

    \b
    Exit code: 0 all are what was saved
               1 one is not
               2 there is no such checkpoint
    """
    root = _root(effective, job, given)
    kept = [k for k in _read(root, job, effective) if not names or _is_named(k, names)]
    if not kept:
        raise BadInput(f"no checkpoint {' '.join(names)} in {root}".replace("  ", " "))
    verdicts: dict[str, list[str]] = {}
    for one in kept:
        if not as_json:
            click.echo(f"{one.path.name} ({size(one.manifest.size_bytes)}): ", nl=False)
        start_s = time.monotonic()
        try:
            verdicts[one.identifier] = verify_hashes(one.path, one.manifest)
        except OSError as error:
            verdicts[one.identifier] = [str(error)]
        if not as_json:
            faults = verdicts[one.identifier]
            verdict = paint("; ".join(faults), BAD) if faults else paint("whole", GOOD)
            click.echo(f"{verdict} ({span(time.monotonic() - start_s)})")
    if as_json:
        click.echo(json.dumps({name: {"faults": faults} for name, faults in verdicts.items()}))
    sys.exit(1 if any(verdicts.values()) else 0)


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


def _root(effective: Effective, job: str | None, given: str | None) -> Path:
    configured = given or effective.settings.checkpoint.dir
    root = Path(configured).expanduser() if configured else _where_it_saves(effective, job)
    with _storage(root):
        is_there = root.is_dir()
    if not is_there:
        raise BadInput(f"{root} is no directory")
    return root


def _read(root: Path, job: str | None, effective: Effective) -> list[Kept]:
    """What the job itself would believe."""
    settings = effective.settings.checkpoint
    if problem := key_problem(settings.key_file):
        raise BadInput(problem)
    with _storage(root):
        return read_ledger(root, job, read_key(settings))


@contextmanager
def _storage(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"the checkpoints in {root} can't be read: {error}") from None


def _where_it_saves(effective: Effective, job: str | None) -> Path:
    """Where the running job has saved, from its ledger; of one that is gone, where it would."""
    try:
        return _where_it_says(find_job(effective, job))
    except NoSuchJob:
        record = None if job is None else read_record(state_root(effective.settings.paths) / job)
        if record is not None and record[0].checkpoint_dir:
            return Path(record[0].checkpoint_dir)
        raise BadInput(
            "name the checkpoints' directory with --dir (no job of yours runs)"
        ) from None


def _where_it_says(found: FoundJob) -> Path:
    view = store_away.read_view(found)
    texts = view.section(Section.LEDGER).values()
    paths = [entry.path for text in texts if (entry := decode(LedgerEntry, text)) is not None]
    if not paths:
        raise BadInput(f"job {found.job} has saved nothing yet; name the directory with --dir")
    return Path(paths[0]).parent


def _is_named(kept: Kept, names: tuple[str, ...]) -> bool:
    return bool({kept.identifier, str(kept.manifest.step), kept.path.name} & set(names))


def _row(kept: Kept, resume: int | None, now_unix_s: float) -> tuple[str, ...]:
    manifest = kept.manifest
    return (
        "" if resume is None else str(resume),
        str(manifest.step),
        str(manifest.attempt),
        size(manifest.size_bytes),
        str(manifest.world_size),
        span(max(now_unix_s - manifest.created_unix_s, 0.0)),
        _state(kept, resume),
        kept.path.name,
    )


def _state(kept: Kept, resume: int | None) -> str:
    if kept.is_poisoned:
        return paint("poisoned", BAD)
    if not kept.is_whole:
        return paint("damaged", BAD)
    if not kept.manifest.is_finite:
        return paint("not finite", BAD)
    if resume is None:
        return paint("abandoned branch", DOUBTFUL)
    return paint("complete", GOOD)
