"""What each rank said about what it saved (`__<rank>_account.json`, written by the hooks)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.storage import Folder

_NAME = re.compile(r"__\d+_account\.json")


@dataclass(frozen=True)
class Account:
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


def parse_account(text: bytes) -> Account | None:
    """An account from its file; None when it is none (cut off, or of another version)."""
    try:
        value = json.loads(text)
        return Account(
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


def read_accounts(folder: Folder) -> list[Account]:
    """All accounts in a checkpoint, by rank. Raises OSError."""
    return sorted(_read_all(folder), key=lambda account: account.rank)


def _read_all(folder: Folder) -> Iterator[Account]:
    for name in filter(_NAME.fullmatch, folder.names()):
        try:
            account = parse_account(folder.read(name))
        except FileNotFoundError:
            continue  # being removed by someone else
        if account is not None:
            yield account
