"""Verdicts: small files beside the manifest that say what became of a checkpoint.

They are added and never changed, and only the leader writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint_files import VERDICT
from holdfast.storage import Folder


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
