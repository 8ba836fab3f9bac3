"""`holdfast checkpoint show`: everything that is known of one checkpoint."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click

from holdfast_sidecar.cli.checkpoint.naming import find_one
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.shelf import look
from holdfast_sidecar.cli.checkpoint.show_page import page
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput


@click.command("show")
@click.argument("name", required=False, metavar="[STEP|IDENTIFIER|NAME]")
@job_option
@dir_option
@json_option
@settings_options
def show_command(
    effective: Effective, name: str | None, job: str | None, given: str | None, as_json: bool
) -> None:
    """Show one checkpoint: step, ranks, position, cost, verdict, files (default: the newest).

    \b
      holdfast checkpoint show
      holdfast checkpoint show 1200 --dir s3://bucket/run7
    """
    shelf = look(effective, job, given)
    if name is not None:
        kept = find_one(shelf, name)
    elif shelf.kept:
        kept = shelf.kept[0]
    else:
        raise BadInput(shelf.nothing)
    if as_json:
        document = asdict(kept.manifest) | {
            "path": kept.folder.url,
            "verdict": kept.verdict,
            "why": kept.poisoned_for,
            "resume": shelf.resume.get(kept.identifier),
            "why_not": shelf.why_not(kept),
            "failed_attempts": sorted(kept.failed_attempts),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(page(kept, shelf, time.time()))
