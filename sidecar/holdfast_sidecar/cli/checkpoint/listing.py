"""`holdfast checkpoint list`: what there is, and which one a restart would try first."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from holdfast_sidecar.checkpoint.ledger import Kept
from holdfast_sidecar.cli.checkpoint.ancestry import Node, draw
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.shelf import Shelf, look
from holdfast_sidecar.cli.checkpoint.words import age, standing
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import size, table
from holdfast_sidecar.config.loading import Effective


@click.command("list")
@job_option
@dir_option
@json_option
@settings_options
def list_command(effective: Effective, job: str | None, given: str | None, as_json: bool) -> None:
    """List the checkpoints on storage, newest first, and what a restart would try.

    \b
      holdfast checkpoint list
      holdfast checkpoint list --dir s3://bucket/run7

    Read from storage alone, so it works without the job. The drawing on the left shows which one
    goes back to which (`*` the living line, `o` branches that were left); `resume` is the order in
    which a restart would try them.
    """
    shelf = look(effective, job, given)
    if as_json:
        click.echo(json.dumps(_document(shelf), indent=2))
    else:
        click.echo("\n".join(_lines(shelf, time.time())))


def _document(shelf: Shelf) -> dict[str, Any]:
    return {
        "dir": shelf.root,
        "checkpoints": [
            {
                **asdict(kept.entry()),
                "job": kept.manifest.job,
                "resume": shelf.resume.get(kept.identifier),
                "why_not": shelf.why_not(kept),
            }
            for kept in shelf.kept
        ],
        "unbelieved": shelf.unbelieved,
        "torn": shelf.torn,
        "left_alone": shelf.left_alone,
    }


def _lines(shelf: Shelf, now_unix_s: float) -> Iterator[str]:
    if not shelf.kept:
        yield shelf.nothing
    for job in shelf.jobs:
        if len(shelf.jobs) > 1:
            yield f"job {job}"
        yield _table(shelf, job, now_unix_s)
    for name, why in sorted(shelf.unbelieved.items()):
        yield f"not believed: {name} ({why})"
    if shelf.torn:
        yield f"not sealed (torn, or being written now): {', '.join(shelf.torn)}"
    yield from shelf.left_alone


def _table(shelf: Shelf, job: str, now_unix_s: float) -> str:
    kept = {one.identifier: one for one in shelf.of(job)}
    nodes = [
        Node(one.identifier, one.goes_back_to(kept), one.manifest.created_unix_s)
        for one in kept.values()
    ]
    headings = ("", "step", "resume", "state", "trigger", "age", "size", "ranks", "attempt", "name")
    rows = [
        (row.drawing, *_row(kept[row.identifier], shelf, now_unix_s))
        for row in draw(nodes, shelf.living)
    ]
    return table(headings, rows)


def _row(kept: Kept, shelf: Shelf, now_unix_s: float) -> tuple[str, ...]:
    manifest, place = kept.manifest, shelf.resume.get(kept.identifier)
    return (
        str(manifest.step),
        "" if place is None else str(place),
        standing(kept, shelf),
        manifest.trigger or "-",
        age(manifest.created_unix_s, now_unix_s),
        size(manifest.size_bytes),
        str(manifest.world_size),
        str(manifest.attempt),
        kept.folder.name,
    )
