"""A checkpoint's files as ranks and sidecars both know them: names, seal, what was promised.

A directory is a checkpoint once `manifest.json` lies in it. The sidecar writes that; a rank checks
what it promises: its own digest (and key, when one is given), then every file's size and hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from holdfast.storage import Folder

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class Damaged(Exception):
    """The files are not what the manifest promised."""


class BrokenSeal(ValueError):
    """A text is not what was sealed, or was sealed with another key."""


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


def read_promises(folder: Folder, key: bytes | None = None) -> list[PromisedFile]:
    """Files that the manifest promises; raises Damaged when there is none or it is not whole."""
    try:
        manifest = open_sealed(folder.read(MANIFEST), key)
        return [
            PromisedFile(name, int(fact["size"]), str(fact["sha256"]))
            for name, fact in sorted(manifest["files"].items())
        ]
    except FileNotFoundError:
        raise Damaged(f"{folder.name}: no manifest, so no checkpoint") from None
    except BrokenSeal as error:
        raise Damaged(f"{folder.name}: the manifest is not believed: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder.name}: the manifest can't be read: {error}") from error


def seal(document: dict[str, Any], key: bytes | None = None) -> bytes:
    """The text of a document that carries its own digest, and an HMAC when a key is given."""
    body = _canonical(document)
    marks = {"sha256": hashlib.sha256(body).hexdigest()}
    if key is not None:
        marks["hmac_sha256"] = hmac.new(key, body, "sha256").hexdigest()
    return json.dumps({**document, "seal": marks}, sort_keys=True, indent=1).encode()


def open_sealed(text: bytes, key: bytes | None = None) -> dict[str, Any]:
    """The document that was sealed; raises BrokenSeal, or what parsing nonsense raises."""
    document: dict[str, Any] = json.loads(text)
    marks = document.pop("seal")
    body = _canonical(document)
    if not hmac.compare_digest(str(marks["sha256"]), hashlib.sha256(body).hexdigest()):
        raise BrokenSeal("its own digest does not fit")
    if key is not None and not hmac.compare_digest(
        str(marks.get("hmac_sha256", "")), hmac.new(key, body, "sha256").hexdigest()
    ):
        raise BrokenSeal("it was not sealed with this job's key")
    return document


def _canonical(document: dict[str, Any]) -> bytes:
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


def check_nothing_is_added(folder: Folder, rank: int, files: list[PromisedFile]) -> None:
    """A rank unpickles only what was promised, also where it would find a file that was not.

    With more ranks than when it was saved, a rank looks in vain for its own file.
    """
    promised = {file.name for file in files}
    for name in (own_file(rank), TORCH_METADATA):
        if name not in promised and folder.exists(name):
            raise Damaged(f"{name}: is not in the manifest")


def check_file(folder: Folder, file: PromisedFile) -> None:
    """Compare size and hash with the promise; raises Damaged."""
    try:
        size = folder.size(file.name)
        if size != file.size:
            raise Damaged(f"{file.name}: {size} bytes of {file.size}")
        digest = hashlib.sha256()
        with folder.open(file.name) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise Damaged(f"{file.name}: {error.strerror or error}") from error
    if digest.hexdigest() != file.sha256:
        raise Damaged(f"{file.name}: its bytes have changed since they were saved")
