"""Verdicts: small files beside the manifest that say what became of a checkpoint.

They are added and never changed, and only the leader writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from holdfast.storage import Folder

NAME = re.compile(r"(good|poisoned|unloaded)-(\d+)\.json")


def append_verdict(folder: Folder, kind: str, said: dict[str, Any], number: int = 0) -> None:
    """Write `<kind>-<number>.json`, with the first free number unless one is given."""
    taken = {f"{kind}-{number}.json"} & set(folder.names()) if number else _taken(folder, kind)
    if number and taken:
        return  # said before
    chosen = number or max((int(n.partition("-")[2].split(".")[0]) for n in taken), default=0) + 1
    folder.write(f"{kind}-{chosen}.json", json.dumps(said, sort_keys=True).encode())


def read_verdicts(folder: Folder, names: list[str], kind: str) -> Iterator[dict[str, Any]]:
    """What verdicts of this kind say, `names` being the folder's files.

    One that was cut off by a crash says nothing but that it is there. Raises OSError.
    """
    for name in names:
        match = NAME.fullmatch(name)
        if match is None or match[1] != kind:
            continue
        try:
            said = json.loads(folder.read(name))
        except (FileNotFoundError, ValueError):
            said = {}
        yield said if isinstance(said, dict) else {}


def _taken(folder: Folder, kind: str) -> set[str]:
    return {n for n in folder.names() if (m := NAME.fullmatch(n)) is not None and m[1] == kind}
