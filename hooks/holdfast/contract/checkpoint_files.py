"""A checkpoint's files as ranks and sidecars both know them: mark, names, seal, what was promised.

A directory is Holdfast's once `holdfast.json` lies in it, and a checkpoint once `manifest.json`
does. The sidecar writes that; a rank checks what it promises: its own digest (and key, when one is
given), then every file's size and hash.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import hmac
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.contract.page import checkpoint_name
from holdfast.contract.permit import Licence, NotPermitted, Permit, Stored
from holdfast.contract.storage import Folder, NotOurs, is_own_folder

MARK = "holdfast.json"
"""Written into a folder before anything else: what bears it Holdfast made, and nothing else does it
ever write into or remove."""

MANIFEST = "manifest.json"
VOID = "void.json"
"""Beside the files it says: never sealed, whatever manifest a late leader may still write."""

VERDICT = re.compile(r"(good|poisoned|unloaded)-(\d+)\.json")
_CHUNK = 1 << 20
_MARK_BYTES = 4096
_KIND = "checkpoint"
_OWNER = re.compile(r"__(\d+)_")
_RANKS_FILE = re.compile(r"__\d+_(own\.pt|account\.json|written\.json|\d+\.distcp)")


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


@dataclass(frozen=True)
class FolderMark:
    """Which checkpoint a folder was made for."""

    job: str
    attempt: int
    step: int
    identifier: str


def claim_folder(folder: Folder, mark: FolderMark) -> None:
    """Mark a folder, which may be missing, as this checkpoint's; every rank and node may do so.

    To be called before anything is written into it. Raises NotOurs where something else lies there,
    and OSError, also where a leader gave it up: what would be written could never be resumed from.
    """
    refusal = f"{folder.url} was not made for this checkpoint, so nothing is written there"
    with suppress(FileNotFoundError):
        if not is_own_folder(folder):
            raise NotOurs(refusal)
    if not folder.names():
        folder.write(MARK, json.dumps({"holdfast": _KIND, **asdict(mark)}).encode())
    if read_mark(folder) != mark or not is_own_folder(folder):
        raise NotOurs(refusal)
    if folder.exists(VOID):
        raise OSError(errno.ECANCELED, "it was given up before it was written", folder.url)


def read_mark(folder: Folder) -> FolderMark | None:
    """The mark of a folder; None when it bears none of ours. Raises OSError."""
    try:
        with folder.open(MARK) as stream:
            said = json.loads(stream.read(_MARK_BYTES))
        if said["holdfast"] != _KIND:
            return None
        return FolderMark(
            str(said["job"]), int(said["attempt"]), int(said["step"]), str(said["identifier"])
        )
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def mark_of(folder: Folder) -> FolderMark | None:
    """The mark that a folder bears, where it was made for just this folder. Raises OSError."""
    mark = read_mark(folder)
    if mark is None or checkpoint_name(mark.step, mark.identifier) != folder.name:
        return None
    return mark


def marked(folder: Folder, job: str | None = None) -> Permit:
    """To remove what is known in a folder that Holdfast made, for this job where one is named,
    under our own account. Raises NotPermitted, OSError."""
    mark = mark_of(folder)
    if mark is None or job not in (mark.job, None) or not is_own_folder(folder):
        raise NotPermitted("it does not bear Holdfast's mark for this job, or has another owner")
    return Permit(Licence.MARK, Stored(folder.url), f"marked for job {mark.job}")


def is_sealing(name: str) -> bool:
    """Whether a file says something of the folder, and is no part of what was saved."""
    return name in (MARK, MANIFEST, VOID) or VERDICT.fullmatch(name) is not None


def is_own_name(name: str) -> bool:
    """Whether Holdfast itself gives its files such names. What a user's function wrote is known by
    the ranks' accounts."""
    return is_sealing(name) or name == TORCH_METADATA or _RANKS_FILE.fullmatch(name) is not None


def added_names(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """What a user's function wrote into a folder, by its files before and after."""
    return sorted(name for name in {*after} - {*before} if not is_own_name(name))


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


def share_checks(files: list[PromisedFile], rank: int, ranks: range) -> list[PromisedFile]:
    """What this one of `ranks` checks, so that together they check everything.

    Sizes are balanced; a rank is given what it wrote, because it will load that, until it has its
    fair share. What is unpickled or read by it in any case it checks itself.
    """
    least = sum(file.size for file in files) / len(ranks)
    loads, mine, left = dict.fromkeys(ranks, 0), set[str](), []
    by_size = sorted(files, key=lambda file: (-file.size, file.name))
    for file in by_size:
        match = _OWNER.match(file.name)
        owner = int(match[1]) if match else -1
        if owner not in loads or loads[owner] >= least:
            left.append(file)
            continue
        loads[owner] += file.size + 1
        mine |= {file.name} if owner == rank else set()
    idle = [(load, each) for each, load in loads.items()]
    heapq.heapify(idle)
    for file in left:
        load, each = idle[0]
        heapq.heapreplace(idle, (load + file.size + 1, each))
        mine |= {file.name} if each == rank else set()
    mine |= {own_file(rank), TORCH_METADATA}
    return [file for file in by_size if file.name in mine]


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
