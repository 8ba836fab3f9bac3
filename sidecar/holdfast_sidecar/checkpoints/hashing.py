"""Which files of a checkpoint are hashed by whom, and their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial

from holdfast.checkpoint_files import is_own_name, is_sealing
from holdfast.storage import Folder
from holdfast_sidecar.checkpoints.account import Account
from holdfast_sidecar.checkpoints.worker_threads import WorkerThreads
from holdfast_sidecar.records.checkpoint import FileFact

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
    folder: Folder, accounts: Iterable[Account], hashed: Collection[str] = ()
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
