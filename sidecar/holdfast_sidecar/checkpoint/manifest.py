"""Several files or slots of a checkpoint at once, in a few threads that the first error stops.

Threads are enough: checksums, torch's archive writer and files let go of the interpreter lock.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from holdfast.contract.checkpoint_files import (
    MANIFEST,
    VERDICT,
    VOID,
    BrokenSeal,
    is_own_name,
    is_sealing,
    open_sealed,
    seal,
)
from holdfast.contract.storage import Folder
from holdfast_sidecar.records.checkpoint import FileFact
from holdfast_sidecar.records.plan import Member

R = TypeVar("R")

MOST_THREADS = 4
"""More would take from the ranks' memory bandwidth what storage seldom can use."""


def count_threads(jobs: int) -> int:
    """How many threads share so many jobs: half of the cores stay with the ranks."""
    return max(1, min(jobs, MOST_THREADS, len(os.sched_getaffinity(0)) // 2))


class WorkerThreads:
    """Runs jobs whose progress, in bytes, comes to `tell` from one thread at a time."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._is_stopped = False

    def advance(self, size: int) -> None:
        """A job moved so many bytes. Raises OSError once another has failed: nobody needs this one
        any more."""
        with self._lock:
            if self._is_stopped:
                raise OSError(errno.ECANCELED, "what it was a part of has failed")
            self._tell(size)

    def run(self, jobs: Sequence[Callable[[], R]]) -> list[R]:
        """What they answer, in their order; or the first error, once all have ended."""
        # A thread is as nice as the one that starts it, so these give way if that one does.
        with ThreadPoolExecutor(count_threads(len(jobs)), "worker") as pool:
            under_way = [pool.submit(job) for job in jobs]
            try:
                for ended in as_completed(under_way):
                    ended.result()
            except BaseException:
                with self._lock:
                    self._is_stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [each.result() for each in under_way]


# The manifest: written last beside the files, it makes a checkpoint exist.
#
# How it is sealed, and how the ranks read it, is in `holdfast.contract.checkpoint_files`.

# Verdicts: small files beside the manifest that say what became of a checkpoint.
#
# They are added and never changed, and only the leader writes them.


def append_verdict(folder: Folder, kind: str, said: dict[str, Any]) -> None:
    """Write `<kind>-<number>.json`, with the number after the highest so far. Raises OSError."""
    matches = filter(None, map(VERDICT.fullmatch, folder.names()))
    taken = (int(match[2]) for match in matches if match[1] == kind)
    number = max(taken, default=0) + 1
    folder.write(f"{kind}-{number}.json", json.dumps(said, sort_keys=True).encode())


def read_verdicts(folder: Folder, names: list[str], kind: str) -> Iterator[dict[str, Any]]:
    """What verdicts of this kind say, `names` being the folder's files.

    One that was cut off by a crash says nothing but that it is there. Raises OSError.
    """
    for name in names:
        match = VERDICT.fullmatch(name)
        if match is None or match[1] != kind:
            continue
        try:
            said = json.loads(folder.read(name))
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            said = {}
        yield said if isinstance(said, dict) else {}


# What each rank said about what it saved (`__<rank>_account.json`, written by the hooks).

_NAME = re.compile(r"__\d+_account\.json")


@dataclass(frozen=True)
class PartRecord:
    """One rank's account of its part."""

    rank: int
    step: int
    world_size: int
    job: str
    attempt: int
    finite: bool
    torch_version: str
    ancestors: tuple[str, ...] = ()
    """Checkpoints this one goes back to, newest first; not all of them were sealed."""
    position: dict[str, Any] = field(default_factory=dict)
    random_state: bool = False
    files: tuple[str, ...] = ()
    """What the user's own function wrote into the folder."""


def is_account(name: str) -> bool:
    """Whether a file of this name is a rank's account."""
    return _NAME.fullmatch(name) is not None


def parse_account(text: bytes) -> PartRecord | None:
    """An account from its file; None when it is none (cut off, or of another version)."""
    try:
        value = json.loads(text)
        return PartRecord(
            rank=int(value["rank"]),
            step=int(value["step"]),
            world_size=int(value["world_size"]),
            job=str(value["job"]),
            attempt=int(value["attempt"]),
            finite=bool(value["finite"]),
            torch_version=str(value["torch"]),
            ancestors=tuple(str(name) for name in value["ancestors"]),
            position=dict(value["position"]),
            random_state=bool(value["random_state"]),
            files=tuple(str(name) for name in value.get("files", ())),
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_accounts(folder: Folder) -> list[PartRecord]:
    """All accounts in a checkpoint, by rank. Raises OSError."""
    return sorted(_read_all(folder), key=lambda account: account.rank)


def _read_all(folder: Folder) -> Iterator[PartRecord]:
    for name in filter(_NAME.fullmatch, folder.names()):
        try:
            account = parse_account(folder.read(name))
        except FileNotFoundError:
            continue  # being removed by someone else
        if account is not None:
            yield account


# Which files of a checkpoint are hashed by whom, and their hashes.

_OWNED = re.compile(r"__(\d+)_")
_CHUNK = 1 << 20  # hashlib lets go of the interpreter lock for pieces this large


def owner(name: str) -> int:
    """The rank whose node hashes this file: torch's and our own are named `__<rank>_…`.

    All else (torch's metadata, what a user's own save function wrote) is rank 0's.
    """
    match = _OWNED.match(name)
    return int(match[1]) if match else 0


def list_files(folder: Folder, ranks: Iterable[int]) -> list[str]:
    """Relative names of the files that these ranks' node hashes once they have saved: those that
    Holdfast or torch named after them. Who wrote what else a user's function left, and whether it
    is through with it, is known only once all ranks have saved: see `list_rest`."""
    wanted = set(ranks)
    return [name for name in folder.names() if _is_part(name) and owner(name) in wanted]


def list_rest(
    folder: Folder, accounts: Iterable[PartRecord], hashed: Collection[str] = ()
) -> list[str]:
    """Once all ranks have saved: what no node has hashed, of what Holdfast or torch named and what
    the ranks' accounts say that a user's function wrote. What else lies there is no part of it."""
    told = {name for account in accounts for name in account.files}
    wanted = (name for name in folder.names() if _is_part(name) or name in told)
    return [name for name in wanted if name not in hashed]


def _is_part(name: str) -> bool:
    return is_own_name(name) and not is_sealing(name)


def hash_file(
    folder: Folder, name: str, tell: Callable[[int], object] = lambda _: None
) -> FileFact:
    """Size and SHA-256 of what is in a file; `tell` hears of every piece read, in bytes."""
    digest = hashlib.sha256()
    size = 0
    with folder.open(name) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            tell(len(chunk))
    return FileFact(size, digest.hexdigest())


def hash_files(
    folder: Folder, names: Iterable[str], tell: Callable[[int], object] = lambda _: None
) -> dict[str, FileFact]:
    """Facts of all these files, of which a few are read at once, a piece of each in memory.

    `tell` is called by one thread at a time. Raises OSError when one can't be read.
    """
    threads, files = WorkerThreads(tell), list(names)
    facts = threads.run([partial(hash_file, folder, name, threads.advance) for name in files])
    return dict(zip(files, facts, strict=True))


def hash_listed(
    folder: Folder, names: Iterable[str], tell: Callable[[int, int], object]
) -> dict[str, FileFact]:
    """The same; `tell` hears of the bytes read so far, and of how many there are."""
    sizes = {name: folder.size(name) for name in names}
    # The largest first: one that is begun last would keep everybody waiting.
    by_size, total = sorted(sizes, key=lambda name: -sizes[name]), sum(sizes.values())
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        tell(done, total)

    return hash_files(folder, by_size, advance)


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
