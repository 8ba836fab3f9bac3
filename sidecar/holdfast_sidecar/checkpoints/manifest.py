"""The manifest: written last beside the files, it makes a checkpoint exist.

How it is sealed, and how the ranks read it, is in `holdfast.checkpoint_files`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint_files import MANIFEST, VOID, BrokenSeal, open_sealed, seal
from holdfast.storage import Folder
from holdfast_sidecar.checkpoints.hashing import hash_file
from holdfast_sidecar.records.checkpoint import FileFact
from holdfast_sidecar.records.plan import Member

NAME = MANIFEST
SCHEMA = 2


class InvalidManifest(ValueError):
    """There is no manifest, or it is not what was written."""


class NoManifest(InvalidManifest):
    """The directory was never sealed, is void, or is being removed."""


@dataclass(frozen=True)
class Manifest:
    """Everything known about a checkpoint when it was sealed."""

    identifier: str
    step: int
    attempt: int
    epoch: int
    job: str
    parent: str
    """The checkpoint that its attempt went on from, or saved before; empty: none."""
    world_size: int
    layout: list[Member]
    files: dict[str, FileFact]
    torch_version: str
    created_unix_s: float
    position: dict[str, Any] = field(default_factory=dict)
    """Data position of rank 0, for people; ranks keep theirs in their own files."""
    random_state: bool = False
    is_finite: bool = True
    ancestors: list[str] = field(default_factory=list)
    """All that it goes back to and that were there when it was sealed, newest first: its parent may
    be removed sooner than a good one before."""
    requested_by: str = ""
    trigger: str = ""
    """Why it was made, as in its order."""
    blocked_s: float = 0.0
    """What it kept the slowest loop, seconds."""
    write_s: float = 0.0
    """What writing and hashing took the slowest node, seconds."""
    schema: int = SCHEMA

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(fact.size for fact in self.files.values())

    @property
    def order(self) -> tuple[int, int, int]:
        """Later is larger: attempts before epochs before steps."""
        return (self.attempt, self.epoch, self.step)


def format_manifest(manifest: Manifest, key: bytes | None = None) -> bytes:
    """The manifest's text, sealed."""
    return seal(dataclasses.asdict(manifest), key)


def parse_manifest(text: bytes, key: bytes | None = None) -> Manifest:
    """The manifest in a text; raises InvalidManifest."""
    try:
        document = open_sealed(text, key)
        if document["schema"] != SCHEMA:
            raise InvalidManifest(f"schema {document['schema']}; this version reads {SCHEMA}")
        known = {f.name for f in dataclasses.fields(Manifest)}
        fields = {name: value for name, value in document.items() if name in known}
        fields["layout"] = [Member(**member) for member in fields["layout"]]
        fields["files"] = {name: FileFact(**fact) for name, fact in fields["files"].items()}
        return Manifest(**fields)
    except BrokenSeal as error:
        raise InvalidManifest(str(error)) from error
    except InvalidManifest:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        why = f"its manifest can't be read: {what}" if text else "its manifest is empty"
        raise InvalidManifest(why) from error


def write_manifest(folder: Folder, manifest: Manifest, key: bytes | None = None) -> None:
    """Seal a folder; durable before this returns. Raises OSError."""
    folder.write(NAME, format_manifest(manifest, key))


def read_manifest(folder: Folder, key: bytes | None = None) -> Manifest:
    """The manifest of a folder; raises InvalidManifest.

    OSError when the storage does not say: that is no reason to pass the checkpoint over.
    """
    if is_void(folder):
        raise NoManifest("no manifest: it was given up before it was sealed")
    try:
        text = folder.read(NAME)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NoManifest(f"no manifest: {error.strerror}") from error
    return parse_manifest(text, key)


def write_void(folder: Folder, reason: str) -> None:
    """Give a folder up for good; durable before this returns. Raises OSError."""
    folder.write(VOID, json.dumps({"reason": reason}).encode())


def is_void(folder: Folder) -> bool:
    """Whether a leader gave it up. Raises OSError when the storage does not say."""
    return folder.exists(VOID)


def claimed_job(folder: Folder) -> str | None:
    """The job that a manifest names, believed or not; None when it names none. Raises OSError."""
    try:
        return str(json.loads(folder.read(NAME))["job"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def verify_sizes(folder: Folder, manifest: Manifest) -> list[str]:
    """What is wrong at a glance: files missing or of another size. Cheap: one stat a file.

    Raises OSError when the storage does not say.
    """
    faults = []
    for name, fact in sorted(manifest.files.items()):
        try:
            size = folder.size(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            faults.append(f"{name}: missing")
            continue
        if size != fact.size:
            faults.append(f"{name}: {size} bytes of {fact.size}")
    return faults


def verify_hashes(
    folder: Folder, manifest: Manifest, tell: Callable[[int], object] = lambda _: None
) -> list[str]:
    """What is wrong when every byte is read; `tell` hears of every piece read, in bytes."""
    faults = verify_sizes(folder, manifest)
    if not faults:
        faults = [
            f"{name}: its bytes have changed since they were saved"
            for name, fact in sorted(manifest.files.items())
            if hash_file(folder, name, tell) != fact
        ]
    return faults
