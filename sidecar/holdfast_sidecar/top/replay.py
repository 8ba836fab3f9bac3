"""Views from a file: one JSON object a line, as `holdfast top --json` prints them, or as a sidecar
serves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.packing import from_plain, unpack
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.sources import MemorySource


def replay(path: Path) -> MemorySource:
    """The views in a file, in their order; BadInput where it has none."""
    try:
        views = list(parse_views(path.read_text(encoding="utf-8", errors="replace")))
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from None
    if not views:
        raise BadInput(
            f"{path} holds no view: record some with `holdfast top --json >> {path}`, a line each"
        )
    return MemorySource(views, name=f"the recording {path.name}")


def parse_views(text: str) -> Iterator[LiveView]:
    """Every line that is one."""
    for line in text.split("\n"):
        view = parse_view(line)
        if view is not None:
            yield view


def parse_view(line: str) -> LiveView | None:
    """The view in a line; None when it is none."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    heat = told.get("heat") if isinstance(told, dict) else None
    rows = heat.get("rows") if isinstance(heat, dict) else None
    is_packed = isinstance(rows, dict) and any(isinstance(row, str) for row in rows.values())
    return unpack(line.encode()) if is_packed else from_plain(told)
