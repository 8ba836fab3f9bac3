"""Removes what a permit holds for. The only module that calls what removes."""

from __future__ import annotations

import os

from holdfast.contract.permit import DirectoryEntry, Licence, NotPermitted, Permit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LICENCES = frozenset({Licence.OWN_FILE, Licence.MARK})


def unlink(permit: Permit, *, missing_ok: bool = False) -> None:
    """Remove a name. Raises NotPermitted, OSError."""
    entry = _entry_of(permit)
    try:
        os.unlink(entry.name, dir_fd=entry.folder)
    except FileNotFoundError:
        if not missing_ok:
            raise


def rmdir(permit: Permit) -> None:
    """Remove an empty directory. Raises NotPermitted, OSError."""
    entry = _entry_of(permit)
    os.rmdir(entry.name, dir_fd=entry.folder)


def rmtree(permit: Permit, *, ignore_errors: bool = False) -> None:
    """Remove a directory with everything in it; no link is followed. Raises NotPermitted,
    OSError."""
    import shutil  # of weight, and never needed at a rank's start

    entry = _entry_of(permit)
    shutil.rmtree(entry.name, ignore_errors=ignore_errors, dir_fd=entry.folder)


def remove_key(permit: Permit, driver: Any) -> None:
    """Remove one file or object behind an fsspec driver. Raises NotPermitted, what the driver
    raises."""
    driver.rm_file(_entry_of(permit).name)


def remove_prefix(permit: Permit, driver: Any) -> None:
    """The same of an empty directory."""
    driver.rmdir(_entry_of(permit).name)


def _entry_of(permit: Permit) -> DirectoryEntry:
    if permit.licence not in LICENCES or not isinstance(permit.subject, DirectoryEntry):
        raise NotPermitted(f"nothing is removed on {permit.licence.value}: {permit.subject}")
    return permit.subject
