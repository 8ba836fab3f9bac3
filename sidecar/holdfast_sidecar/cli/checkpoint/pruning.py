"""`holdfast checkpoint prune`: removes what retention would, after showing it and asking."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any

import click

from holdfast_sidecar.checkpoint.ledger import DAY_S, Removal, recorded_files, remove, superfluous
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.shelf import Shelf, look
from holdfast_sidecar.cli.checkpoint.words import age
from holdfast_sidecar.cli.finding_the_job import NoSuchJob, find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import size, table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.plan import TERMINAL


@click.command("prune")
@job_option
@dir_option
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Default: checkpoint.keep.")
@click.option("--older-than", metavar="TIME", help="Besides, remove what is older (7d, 12h).")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@settings_options
def prune_command(
    effective: Effective,
    job: str | None,
    given: str | None,
    keep: int | None,
    older_than: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove checkpoints that nobody needs any more: shows them, and asks.

    \b
      holdfast checkpoint prune --dir /ckpt --keep 2
      holdfast checkpoint prune --dir /ckpt --older-than 7d --dry-run

    The newest one that can be resumed from always stays, and so does the newest good one. What
    Holdfast did not make under your account stays too. With --json nothing is removed unless you
    say --yes.

    \b
    Exit code: 0 removed, or nothing to remove
               1 you said no, or one could not be removed
               2 something you gave is wrong
               3 there is no such job
    """
    settings = effective.settings.checkpoint
    older_than_s = settings.keep_days * DAY_S
    if older_than is not None:
        older_than_s = read_seconds("--older-than", older_than)
    shelf = look(effective, job, given)
    if len(shelf.jobs) > 1:
        names = ", ".join(shelf.jobs)
        raise BadInput(f"several jobs save in {shelf.root}, name one with --job: {names}")
    in_use = _in_use(effective, next(iter(shelf.jobs), job))
    now_unix_s = time.time()
    gone = [
        removal
        for removal in superfluous(shelf.kept, keep or settings.keep, older_than_s, now_unix_s)
        if removal.kept.identifier not in in_use
    ]
    if as_json:
        removed = _remove(gone, shelf) if yes and not dry_run else []
        click.echo(json.dumps(_document(gone, removed), indent=2))
    else:
        click.echo(_page(gone, shelf, now_unix_s))
        if dry_run or not gone:
            return
        if not yes and not _is_wanted(len(gone)):
            sys.exit(1)
        removed = _remove(gone, shelf)
        click.echo(f"removed {len(removed)} of {len(gone)}")
    is_done = dry_run or len(removed) == len(gone) or (as_json and not yes)
    sys.exit(0 if is_done else 1)


def _in_use(effective: Effective, job: str | None) -> Collection[str]:
    """Checkpoints that the ranks of a running job may be loading just now."""
    try:
        found = find_job(effective, job)
        plan = parse_cluster(store_away.read_view(found)).plan
    except (NoSuchJob, BadInput, store_away.CutOff):
        return ()
    if plan is None or plan.state in TERMINAL:
        return ()
    return {candidate.identifier for candidate in plan.resume}


def _page(gone: Sequence[Removal], shelf: Shelf, now_unix_s: float) -> str:
    if not gone:
        wanted = f"nothing to remove: {len(shelf.kept)} checkpoints in {shelf.root}, all wanted"
        return "\n".join([wanted, *shelf.left_alone])
    rows = [
        (
            removal.kept.folder.name,
            age(removal.kept.manifest.created_unix_s, now_unix_s),
            size(removal.kept.manifest.size_bytes),
            removal.why,
        )
        for removal in gone
    ]
    total = sum(removal.kept.manifest.size_bytes for removal in gone)
    listed = table(("goes", "age", "size", "because"), rows)
    summed = f"{len(gone)} of {len(shelf.kept)} checkpoints, {size(total)}"
    return "\n".join([listed, summed, *shelf.left_alone])


def _is_wanted(count: int) -> bool:
    what = "this one" if count == 1 else f"these {count}"
    try:
        return click.confirm(f"remove {what} for good?", default=False)
    except click.Abort:  # nobody there to answer
        click.echo("\nholdfast: nothing was removed: nobody answered (--yes doesn't ask)", err=True)
        return False


def _remove(gone: Sequence[Removal], shelf: Shelf) -> list[str]:
    """Names of what is gone; what could not be removed is told on stderr."""
    (job,) = shelf.jobs  # checked before
    folders = (removal.kept.folder for removal in gone)
    removed = {folder.name for folder in remove(folders, job, recorded_files(shelf.kept))}
    for removal in gone:
        if removal.kept.folder.name not in removed:
            click.echo(f"holdfast: {removal.kept.folder.url} could not be removed", err=True)
    return sorted(removed)


def _document(gone: Sequence[Removal], removed: Sequence[str]) -> dict[str, Any]:
    return {
        "superfluous": [
            {
                "identifier": removal.kept.identifier,
                "name": removal.kept.folder.name,
                "size_bytes": removal.kept.manifest.size_bytes,
                "why": removal.why,
            }
            for removal in gone
        ],
        "removed": list(removed),
    }
