"""Which checkpoint a person means by a step, an identifier or a directory's name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from holdfast_sidecar.checkpoint.ledger import Kept
from holdfast_sidecar.cli.checkpoint.shelf import Shelf
from holdfast_sidecar.config.settings import BadInput


def find_named(shelf: Shelf, names: Sequence[str]) -> list[Kept]:
    """Those named, newest first. BadInput when a name fits none."""
    for name in names:
        if not any(_fits(one, name) for one in shelf.kept):
            raise BadInput(_no_such(name, shelf))
    return [one for one in shelf.kept if any(_fits(one, name) for name in names)]


def find_one(shelf: Shelf, name: str) -> Kept:
    """The one named. BadInput when it is none, or one of several."""
    found = find_named(shelf, [name])
    if len(found) > 1:
        choice = ", ".join(one.folder.name for one in found)
        raise BadInput(f"{name} may mean several checkpoints in {shelf.root}: {choice}")
    return found[0]


def _fits(kept: Kept, name: str) -> bool:
    wanted = name.rstrip("/").rpartition("/")[2]
    return wanted in (kept.identifier, str(kept.manifest.step), kept.folder.name)


def _no_such(name: str, shelf: Shelf) -> str:
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


def _nearest(wanted: str, kept: Sequence[Kept]) -> str:
    if wanted.isdecimal():
        steps = sorted({one.manifest.step for one in kept}, key=lambda s: abs(s - int(wanted)))
        return " or ".join(str(step) for step in steps[:2])
    names = [name for one in kept for name in (one.identifier, one.folder.name)]
    close = difflib.get_close_matches(wanted, names, n=2, cutoff=0.5)
    return " or ".join(close) or kept[0].identifier
