"""`holdfast checkpoint now`: asks the job's leader for one, and follows it until it is there."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from holdfast_sidecar.cli.asking import ask
from holdfast_sidecar.cli.checkpoint.following import follow
from holdfast_sidecar.cli.checkpoint.options import job_option, json_option
from holdfast_sidecar.cli.finding_the_job import find_job
from holdfast_sidecar.cli.progress import ProgressLine
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective, read_seconds


@click.command("now")
@job_option
@click.option("--wait/--no-wait", default=True, help="Wait until it is complete (the default).")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for it.")
@json_option
@settings_options
def now_command(
    effective: Effective, job: str | None, wait: bool, timeout: str, as_json: bool
) -> None:
    """Ask a running job for a checkpoint now, and wait until it is complete.

    A request that comes while a checkpoint is on its way, and not yet copied, is met by that one.

    \b
      holdfast checkpoint now
      holdfast checkpoint now --job chargpt --timeout 30m --json
      holdfast checkpoint now --no-wait

    \b
    Exit code: 0 it is complete (with --no-wait: it is asked for)
               1 it came to nothing (the reason is printed), or not in time
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    progress = ProgressLine(sys.stderr, is_quiet=as_json)
    try:
        request = ask(found, store, "checkpoint")
        if not wait:
            click.echo(json.dumps({"request": request}) if as_json else f"asked for: {request}")
            return
        outcome = follow(store, found, request, patience_s, progress)
    finally:
        progress.close()
        store.close()
    if as_json:
        click.echo(json.dumps(asdict(outcome)))
    elif outcome.is_complete:
        click.echo(f"checkpoint {outcome.identifier} at step {outcome.step}: {outcome.path}")
    else:
        click.echo(f"holdfast: no checkpoint: {outcome.reason}", err=True)
    sys.exit(0 if outcome.is_complete else 1)
