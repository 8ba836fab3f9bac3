"""What each rank said about what it saved (`__<rank>_account.json`, written by the hooks)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_accounts(directory: Path) -> list[Account]:
    """All accounts in a directory, by rank."""
    return sorted(_read_all(directory), key=lambda account: account.rank)


def _read_all(directory: Path) -> Iterator[Account]:
    for path in directory.glob("__*_account.json"):
        try:
            account = parse_account(path.read_bytes())
        except OSError:
            continue  # being removed by someone else
        if account is not None:
            yield account
