"""`holdfast checkpoint list`: what there is, and which one a restart would try first."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from holdfast_sidecar.checkpoints.ledger import Kept, candidates, torn_directories
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.storage import find_root, read_kept, reading
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import BAD, DOUBTFUL, GOOD, paint, size, span, table
from holdfast_sidecar.configuration import Effective


@click.command("list")
@job_option
@dir_option
@json_option
@settings_options
def list_command(effective: Effective, job: str | None, given: str | None, as_json: bool) -> None:
    """List the checkpoints on storage, newest first, and which one a restart would try first.

    \b
    `resume` column: the order in which a restart would try them; empty: it would not.
    """
    root = find_root(effective, job, given)
    kept = read_kept(root, job, effective)
    order = {c.identifier: n for n, c in enumerate(candidates(kept), 1)}
    with reading(root):
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
