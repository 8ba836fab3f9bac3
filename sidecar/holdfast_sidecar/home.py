"""The home directory and name of a user who may have neither: containers run as numbers."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from holdfast_sidecar.bad_input import BadInput


def expand(path: str | os.PathLike[str]) -> Path:
    """The path with `~` written out; BadInput where that means nothing."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadInput(f"{path}: this user has no home directory; write the whole path") from None


def personal_directory(given: str | None, usual: str) -> Path:
    """One of the XDG directories, from its variable: a relative one is invalid, and ignored."""
    return expand(given if given and given.startswith("/") else usual)


def user_name() -> str:
    """What people know this user by; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return f"uid {os.getuid()}"
