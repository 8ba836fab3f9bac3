"""Removing what is ours: a file whose owner was compared, a directory of which all files were.

Beside `own_directory`, which every interpreter of a job imports when it starts.
"""

from __future__ import annotations

import os
import stat

from holdfast.contract.own_directory import OWN, find_own, open_own_part
from holdfast.contract.permit import DirectoryEntry, Licence, NotPermitted, Permit, Stored
from holdfast.contract.removing import rmdir, unlink


def owned_file(name: str | os.PathLike[str], folder: int | None = None) -> Permit:
    """To remove a file or directory of this user's, by its path, or its name in an open directory
    of ours. Raises NotPermitted where it is another's; OSError.

    What is not there may be removed: whoever came before was as free to.
    """
    text = os.fspath(name)
    try:
        owner = os.stat(text, dir_fd=folder, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return Permit(Licence.OWN_FILE, DirectoryEntry(text, folder), "nothing is there")
    if owner != os.geteuid() and owner != _owner_here(text, folder):
        raise NotPermitted(f"{text} belongs to another user (uid {owner})")
    return Permit(Licence.OWN_FILE, DirectoryEntry(text, folder), "this user's")


def _owner_here(name: str, folder: int | None) -> int:
    """As whose our files are stored beside this one."""
    if folder is not None:
        return os.fstat(folder).st_uid  # compared when it was opened
    return stored_owner(os.path.dirname(os.path.abspath(name)))  # noqa: PTH100, PTH120


def remove_found(permit: Permit, url: str, folder: int, name: str) -> None:
    """Remove a file or an empty directory below an open one, whatever took its place meanwhile.

    `permit`: for all that is stored under this URL.
    """
    *above, last = name.split("/")
    inner = os.dup(folder)
    try:
        for part in above:
            outer, inner = inner, os.open(part, OWN, dir_fd=inner)
            os.close(outer)
        if stat.S_ISDIR(os.stat(last, dir_fd=inner, follow_symlinks=False).st_mode):
            rmdir(permit.part(url, name, inner, last))
        else:
            unlink(permit.part(url, name, inner, last))
    except FileNotFoundError:
        return  # someone else removed it
    finally:
        os.close(inner)


def remove_own(above: int, name: str) -> None:
    """Remove a directory of ours, in an open one, with everything in it.

    Raises NotPrivate, and removes nothing, where something in it is not ours; OSError.
    """
    try:
        folder = open_own_part(above, name)
    except FileNotFoundError:
        return
    try:
        found = sorted(find_own(folder, os.geteuid(), lambda _: 0))
        permit = Permit(Licence.OWN_FILE, Stored(name), "all in it is this user's")
        for _, inner in found:
            remove_found(permit, name, folder, inner)
    finally:
        os.close(folder)
    try:
        rmdir(owned_file(name, above))
    except FileNotFoundError:
        return


def stored_owner(directory: str | os.PathLike[str]) -> int:
    """As whose a file is stored that this user writes here just now: not always this user's, on NFS
    that squashes root and on some mounts. This user's where nothing can be written."""
    name = os.path.join(directory, f".holdfast-owner-{os.getpid()}-{os.urandom(4).hex()}")  # noqa: PTH118
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.geteuid()
    try:
        return os.fstat(file).st_uid
    finally:
        os.close(file)
        unlink(Permit(Licence.OWN_FILE, DirectoryEntry(name), "made here just now"))
