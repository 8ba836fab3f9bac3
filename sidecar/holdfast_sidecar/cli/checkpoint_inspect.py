"""One checkpoint as a page for people."""

from __future__ import annotations

import difflib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from holdfast_sidecar.checkpoint.ledger import (
    DAY_S,
    Removal,
    StoredCheckpoint,
    recorded_files,
    remove,
    superfluous,
)
from holdfast_sidecar.checkpoint.manifest import verify_hashes
from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.checkpoint_lookup import CheckpointListing, age, look, state_of
from holdfast_sidecar.cli.find_job import NoSuchJob, find_job
from holdfast_sidecar.cli.options import dir_option, job_option, json_option, settings_options
from holdfast_sidecar.cli.tables import BAD, GOOD, paint, size, table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Member

SHOWN = 12
"""Characters of a hash: enough to compare two by eye."""


def page(kept: StoredCheckpoint, shelf: CheckpointListing, now_unix_s: float) -> str:
    """Everything `checkpoint show` prints."""
    return "\n".join([*_facts(kept, shelf, now_unix_s), "", _files(kept)])


def _facts(kept: StoredCheckpoint, shelf: CheckpointListing, now_unix_s: float) -> Iterator[str]:
    manifest = kept.manifest
    yield f"{kept.folder.name}: {state_of(kept, shelf)}"
    yield f"lies in     {kept.folder.url}"
    yield f"step        {manifest.step}, of attempt {manifest.attempt} of job {manifest.job}"
    parents = [one for one in shelf.kept if one.identifier == manifest.parent]
    if manifest.parent:
        gone = "" if parents else " (removed)"
        step = f"step {parents[0].manifest.step}, " if parents else ""
        yield f"goes back to {step}{manifest.parent}{gone}"
    yield f"saved       {age(manifest.created_unix_s, now_unix_s)}{_occasion(kept)}"
    if manifest.write_s > 0:
        yield (
            f"took        {span(manifest.blocked_s)} of the slowest loop, "
            f"{span(manifest.write_s)} to write and hash"
        )
    yield f"ranks       {manifest.world_size}: {', '.join(map(_member, manifest.layout))}"
    yield f"torch       {manifest.torch_version}"
    if any(manifest.position.values()):
        yield f"data        {_position(manifest.position)}"
    yield f"randomness  {'kept, of every rank' if manifest.random_state else 'not kept'}"
    yield f"numbers     {'all finite' if manifest.is_finite else 'not all finite'}"
    if kept.failed_attempts:
        attempts = ", ".join(map(str, sorted(kept.failed_attempts)))
        yield f"loading     failed in attempts {attempts}"
    yield f"files       {len(manifest.files)}, {size(manifest.size_bytes)}"


def _occasion(kept: StoredCheckpoint) -> str:
    trigger = kept.manifest.trigger
    return f", {trigger}" if trigger else ""


def _member(member: Member) -> str:
    first, last = member.ranks[0], member.ranks[-1]
    ranks = f"{first}" if first == last else f"{first} to {last}"
    return f"{ranks} on {member.node}"


def _position(position: dict[str, Any]) -> str:
    taken, epoch = position.get("taken"), position.get("epoch")
    return f"{taken} batches into pass {epoch} over the data"


def _files(kept: StoredCheckpoint) -> str:
    rows = [
        (name, size(fact.size), fact.sha256[:SHOWN])
        for name, fact in sorted(kept.manifest.files.items())
    ]
    return table(("file", "size", "sha256"), rows)


# `holdfast checkpoint prune`: removes what retention would, after showing it and asking.


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


def _page(gone: Sequence[Removal], shelf: CheckpointListing, now_unix_s: float) -> str:
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


def _remove(gone: Sequence[Removal], shelf: CheckpointListing) -> list[str]:
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


# Which checkpoint a person means by a step, an identifier or a directory's name.


def find_named(shelf: CheckpointListing, names: Sequence[str]) -> list[StoredCheckpoint]:
    """Those named, newest first. BadInput when a name fits none."""
    for name in names:
        if not any(_fits(one, name) for one in shelf.kept):
            raise BadInput(_no_such(name, shelf))
    return [one for one in shelf.kept if any(_fits(one, name) for name in names)]


def find_one(shelf: CheckpointListing, name: str) -> StoredCheckpoint:
    """The one named. BadInput when it is none, or one of several."""
    found = find_named(shelf, [name])
    if len(found) > 1:
        choice = ", ".join(one.folder.name for one in found)
        raise BadInput(f"{name} may mean several checkpoints in {shelf.root}: {choice}")
    return found[0]


def _fits(kept: StoredCheckpoint, name: str) -> bool:
    wanted = name.rstrip("/").rpartition("/")[2]
    return wanted in (kept.identifier, str(kept.manifest.step), kept.folder.name)


def _no_such(name: str, shelf: CheckpointListing) -> str:
    wanted = name.rstrip("/").rpartition("/")[2]
    foreign = {directory: f"it is job {job}'s" for directory, job in shelf.foreign.items()}
    unsealed = dict.fromkeys(shelf.torn, "it was never sealed (torn, or being written now)")
    for directory, reason in {**unsealed, **shelf.against, **foreign}.items():
        step, _, identifier = directory.removeprefix("step-").partition("-")
        if wanted in (directory, identifier) or (wanted.isdecimal() and int(wanted) == int(step)):
            return f"{directory} in {shelf.root} is no checkpoint to go by: {reason}"
    if not shelf.kept:
        return shelf.nothing
    return f"no checkpoint {name} in {shelf.root}; did you mean {_nearest(wanted, shelf.kept)}?"


def _nearest(wanted: str, kept: Sequence[StoredCheckpoint]) -> str:
    if wanted.isdecimal():
        steps = sorted({one.manifest.step for one in kept}, key=lambda s: abs(s - int(wanted)))
        return " or ".join(str(step) for step in steps[:2])
    names = [name for one in kept for name in (one.identifier, one.folder.name)]
    close = difflib.get_close_matches(wanted, names, n=2, cutoff=0.5)
    return " or ".join(close) or kept[0].identifier


# `holdfast checkpoint show`: everything that is known of one checkpoint.


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


# `holdfast checkpoint verify`: reads every byte.


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


def _choose(
    shelf: CheckpointListing, names: tuple[str, ...], everything: bool
) -> list[StoredCheckpoint]:
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


def _is_expected(kept: StoredCheckpoint, shelf: CheckpointListing) -> bool:
    """Whether a restart would try it, or would if its files were all there."""
    is_damaged = kept.identifier in shelf.living and not kept.is_whole and not kept.is_poisoned
    return kept.identifier in shelf.resume or is_damaged


def _faults(kept: StoredCheckpoint, tell: Callable[[int], object]) -> list[str]:
    try:
        return verify_hashes(kept.folder, kept.manifest, tell)
    except OSError as error:
        return [str(error)]


def _line(kept: StoredCheckpoint, faults: list[str], took_s: float) -> str:
    verdict = paint("; ".join(faults), BAD) if faults else paint("whole", GOOD)
    return f"{kept.folder.name} ({size(kept.manifest.size_bytes)}): {verdict} ({span(took_s)})"


@contextmanager
def _progress(chosen: list[StoredCheckpoint]) -> Iterator[Callable[[int], object]]:
    """How far the reading is, on stderr, for people only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    total = sum(kept.manifest.size_bytes for kept in chosen)
    with click.progressbar(length=total, label="reading", file=sys.stderr) as bar:
        yield bar.update
