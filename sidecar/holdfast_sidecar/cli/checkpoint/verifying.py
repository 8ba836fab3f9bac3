"""`holdfast checkpoint verify`: reads every byte."""

from __future__ import annotations

import json
import sys
import time

import click

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.checkpoints.ledger import Kept
from holdfast_sidecar.checkpoints.manifest import verify_hashes
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.storage import find_root, read_kept
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import BAD, GOOD, paint, size, span
from holdfast_sidecar.configuration import Effective


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[STEP|IDENTIFIER]...")
@job_option
@dir_option
@json_option
@settings_options
def verify_command(
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
    root = find_root(effective, job, given)
    kept = [k for k in read_kept(root, job, effective) if not names or _is_named(k, names)]
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


def _is_named(kept: Kept, names: tuple[str, ...]) -> bool:
    return bool({kept.identifier, str(kept.manifest.step), kept.path.name} & set(names))
