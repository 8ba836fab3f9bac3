"""Names and reading of a checkpoint's files, as a rank needs them; the sidecar seals them.

A directory is a checkpoint once `manifest.json` lies in it. This side only checks what that
promises: the manifest's own digest (and key, when one is given), then every file's size and hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class Damaged(Exception):
    """The files are not what the manifest promised."""


@dataclass(frozen=True)
class PromisedFile:
    """A file as the manifest has it. `name` is relative to the checkpoint's directory."""

    name: str
    size: int
    sha256: str


TORCH_METADATA = ".metadata"
"""torch.distributed.checkpoint's own index, a pickle like a rank's own file."""


def own_file(rank: int) -> str:
    """Name of the file that holds a rank's own state."""
    return f"__{rank}_own.pt"


def account_file(rank: int) -> str:
    """Name of the file in which a rank says what it saved, for the manifest."""
    return f"__{rank}_account.json"


def read_promises(directory: Path, key: bytes | None = None) -> list[PromisedFile]:
    """Files that the manifest promises; raises Damaged when there is none or it is not whole."""
    try:
        text = (directory / MANIFEST).read_bytes()
        manifest = json.loads(text)
        seal = manifest.pop("seal")
        body = canonical(manifest)
        if not hmac.compare_digest(str(seal["sha256"]), hashlib.sha256(body).hexdigest()):
            raise Damaged(f"{directory.name}: the manifest's own digest does not fit")
        if key is not None and not hmac.compare_digest(
            str(seal.get("hmac_sha256", "")), hmac.new(key, body, "sha256").hexdigest()
        ):
            raise Damaged(f"{directory.name}: the manifest was not sealed with this job's key")
        return [
            PromisedFile(name, int(fact["size"]), str(fact["sha256"]))
            for name, fact in sorted(manifest["files"].items())
        ]
    except FileNotFoundError:
        raise Damaged(f"{directory.name}: no manifest, so no checkpoint") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{directory.name}: the manifest can't be read: {error}") from error


def canonical(document: dict[str, Any]) -> bytes:
    """The one spelling of a JSON document over which digests are made."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def share_out(files: list[PromisedFile], part: int, parts: int) -> list[PromisedFile]:
    """This one's part of the files, sizes balanced: the largest first, to whoever has least."""
    loads = [0] * parts
    mine = []
    for file in sorted(files, key=lambda f: (-f.size, f.name)):
        least = loads.index(min(loads))
        loads[least] += file.size + 1
        if least == part:
            mine.append(file)
    return mine


def check_nothing_is_added(directory: Path, rank: int, files: list[PromisedFile]) -> None:
    """A rank unpickles only what was promised, also where it would find a file that was not.

    With more ranks than when it was saved, a rank looks in vain for its own file.
    """
    promised = {file.name for file in files}
    for name in (own_file(rank), TORCH_METADATA):
        if name not in promised and os.path.lexists(directory / name):
            raise Damaged(f"{name}: is not in the manifest")


def check_file(directory: Path, file: PromisedFile) -> None:
    """Compare size and hash with the promise; raises Damaged."""
    path = directory / file.name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise Damaged(f"{file.name}: lies outside the checkpoint")
    try:
        size = path.stat().st_size
        if size != file.size:
            raise Damaged(f"{file.name}: {size} bytes of {file.size}")
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise Damaged(f"{file.name}: {error.strerror}") from error
    if digest.hexdigest() != file.sha256:
        raise Damaged(f"{file.name}: its bytes have changed since they were saved")


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that it is there, whole, after a crash of the machine."""
    temporary = path.with_name(f".{path.name}.writing")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
