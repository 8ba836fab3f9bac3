"""Writes the six dashboards beside this file, or into a folder: python dashboards/write.py [FOLDER]

They are what Grafana imports; a test compares the files with what this script writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from builders.fleet import fleet
from builders.names import Json
from builders.node import node
from builders.ranks import ranks
from builders.recovery import recovery
from builders.run import run
from builders.sidecars import sidecars

ALL = (fleet, run, ranks, node, recovery, sidecars)


def text(model: Json) -> str:
    """The same for the same dashboard, whoever writes it."""
    return json.dumps(model, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def write(folder: Path) -> None:
    """One file each, named by its uid."""
    folder.mkdir(parents=True, exist_ok=True)
    for build in ALL:
        model = build()
        (folder / f"{model['uid']}.json").write_text(text(model), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
