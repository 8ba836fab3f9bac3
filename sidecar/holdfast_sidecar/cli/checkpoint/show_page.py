"""One checkpoint as a page for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast_sidecar.checkpoint.ledger import Kept
from holdfast_sidecar.cli.checkpoint.shelf import Shelf
from holdfast_sidecar.cli.checkpoint.words import age, standing
from holdfast_sidecar.cli.table import size, table
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Member

SHOWN = 12
"""Characters of a hash: enough to compare two by eye."""


def page(kept: Kept, shelf: Shelf, now_unix_s: float) -> str:
    """Everything `checkpoint show` prints."""
    return "\n".join([*_facts(kept, shelf, now_unix_s), "", _files(kept)])


def _facts(kept: Kept, shelf: Shelf, now_unix_s: float) -> Iterator[str]:
    manifest = kept.manifest
    yield f"{kept.folder.name}: {standing(kept, shelf)}"
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


def _occasion(kept: Kept) -> str:
    trigger = kept.manifest.trigger
    return f", {trigger}" if trigger else ""


def _member(member: Member) -> str:
    first, last = member.ranks[0], member.ranks[-1]
    ranks = f"{first}" if first == last else f"{first} to {last}"
    return f"{ranks} on {member.node}"


def _position(position: dict[str, Any]) -> str:
    taken, epoch = position.get("taken"), position.get("epoch")
    return f"{taken} batches into pass {epoch} over the data"


def _files(kept: Kept) -> str:
    rows = [
        (name, size(fact.size), fact.sha256[:SHOWN])
        for name, fact in sorted(kept.manifest.files.items())
    ]
    return table(("file", "size", "sha256"), rows)
