"""`holdfast checkpoint verify`: reads every byte."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from holdfast_sidecar.checkpoint.ledger import Kept
from holdfast_sidecar.checkpoint.manifest import verify_hashes
from holdfast_sidecar.cli.checkpoint.naming import find_named
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.shelf import Shelf, look
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import BAD, GOOD, paint, size
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.records.formatting import span


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[STEP|IDENTIFIER|NAME]...")
@job_option
@dir_option
@click.option("--all", "everything", is_flag=True, help="All there are, abandoned ones too.")
@json_option
@settings_options
def verify_command(
    effective: Effective,
    names: tuple[str, ...],
    job: str | None,
    given: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Read every byte of these checkpoints and compare it with the manifest.

    Without names: those that a restart would try, and those it would have tried before they were
    damaged.

    \b
      holdfast checkpoint verify --dir /ckpt
      holdfast checkpoint verify --dir /ckpt 1200 --json

    \b
    Exit code: 0 all are what was saved
               1 one is not
               2 there is no such checkpoint
               3 there is no such job
    """
    shelf = look(effective, job, given)
    chosen = _choose(shelf, names, everything)
    verdicts: dict[str, list[str]] = {}
    with _progress(chosen) as tell:
        for one in chosen:
            start_s = time.monotonic()
            verdicts[one.identifier] = _faults(one, tell)
            if not as_json:
                click.echo(_line(one, verdicts[one.identifier], time.monotonic() - start_s))
    if not names:
        verdicts |= {name: [why] for name, why in shelf.unbelieved.items()}
        if not as_json:
            for name, why in shelf.unbelieved.items():
                click.echo(f"{name}: {paint(why, BAD)}")
    if as_json:
        click.echo(json.dumps({name: {"faults": faults} for name, faults in verdicts.items()}))
    sys.exit(1 if any(verdicts.values()) else 0)


def _choose(shelf: Shelf, names: tuple[str, ...], everything: bool) -> list[Kept]:
    if names and everything:
        raise BadInput("name checkpoints, or say --all: not both")
    if names:
        return find_named(shelf, names)
    chosen = [k for k in shelf.kept if everything or _is_expected(k, shelf)]
    if not chosen and shelf.unbelieved:
        return []
    if not chosen and shelf.kept:
        raise BadInput(
            f"a restart would try none of the {len(shelf.kept)} checkpoints in {shelf.root}"
            " (`holdfast checkpoint list` says why); --all verifies them all the same"
        )
    if not chosen:
        raise BadInput(shelf.nothing)
    return chosen


def _is_expected(kept: Kept, shelf: Shelf) -> bool:
    """Whether a restart would try it, or would if its files were all there."""
    is_damaged = kept.identifier in shelf.living and not kept.is_whole and not kept.is_poisoned
    return kept.identifier in shelf.resume or is_damaged


def _faults(kept: Kept, tell: Callable[[int], object]) -> list[str]:
    try:
        return verify_hashes(kept.folder, kept.manifest, tell)
    except OSError as error:
        return [str(error)]


def _line(kept: Kept, faults: list[str], took_s: float) -> str:
    verdict = paint("; ".join(faults), BAD) if faults else paint("whole", GOOD)
    return f"{kept.folder.name} ({size(kept.manifest.size_bytes)}): {verdict} ({span(took_s)})"


@contextmanager
def _progress(chosen: list[Kept]) -> Iterator[Callable[[int], object]]:
    """How far the reading is, on stderr, for people only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    total = sum(kept.manifest.size_bytes for kept in chosen)
    with click.progressbar(length=total, label="reading", file=sys.stderr) as bar:
        yield bar.update
