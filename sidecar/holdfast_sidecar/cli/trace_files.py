"""Where the files of a trace lie, and where who asked for them wants them."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast_sidecar.config.paths import expand
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.records.checkpoint import TracedRank, TraceOrder


@dataclass(frozen=True)
class Collected:
    """A rank's trace, and where it lies now."""

    rank: TracedRank
    path: str
    """On this machine; empty: it lies on another."""
    trouble: str = ""
    """Why it is not where it was wanted."""


def collect(one: TracedRank, order: TraceOrder, folder: Path | None) -> Collected:
    """Put a file of this machine into the folder that was named."""
    source = Path(one.path)
    if not one.path or one.host != socket.gethostname() or not source.is_file():
        return Collected(one, "")
    if folder is None:
        return Collected(one, str(source))
    target = folder / f"step-{order.step:08d}-{source.name}"
    try:
        link_or_copy(source, target)
    except OSError as error:
        why = error.strerror or str(error)
        return Collected(one, str(source), f"it can't be put into {folder}: {why}")
    return Collected(one, str(target))


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for the file where that can be had; in place of what was there."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            if source.stat().st_uid != os.geteuid():
                raise PermissionError  # a second name for it could not be told from another's file
            os.link(source, draft)
        except OSError:
            shutil.copyfile(source, draft)
        draft.replace(target)
    finally:
        # Half a copy; or a second name, as replacing a file by itself does nothing.
        unlink(owned_file(draft), missing_ok=True)


def make_folder(out: str) -> Path:
    """The folder that was named; BadInput where there can be none."""
    folder = expand(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: {error}") from None
    return folder
