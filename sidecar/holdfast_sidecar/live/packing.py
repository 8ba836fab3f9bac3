"""A view as the bytes of `/live.json` and back. The map's cells are a character each."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from holdfast_sidecar.live.levels import RATIOS, levels_of, parse, spell
from holdfast_sidecar.live.plain import from_plain, to_plain
from holdfast_sidecar.live.view import COLUMNS, Heat, LiveView

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def pack(view: LiveView) -> bytes:
    """The view as JSON."""
    told = to_plain(dataclasses.replace(view, heat=Heat()))
    return _ENCODER.encode({**told, "heat": _pack_heat(view.heat)}).encode()


def unpack(told: bytes) -> LiveView | None:
    """The view that somebody packed; None when it is none at all."""
    try:
        plain = json.loads(told)
    except (ValueError, RecursionError):
        return None
    if isinstance(plain, dict) and isinstance(plain.get("heat"), dict):
        plain["heat"] = _unpack_heat(plain["heat"])
    return from_plain(plain)


def _pack_heat(heat: Heat) -> dict[str, Any]:
    bare = to_plain(dataclasses.replace(heat, rows={}, phases={}))
    rows = {str(rank): spell(levels_of(row)) for rank, row in heat.rows.items()}
    phases = {
        str(rank): spell(0 if phase is None else phase + 1 for phase in row)
        for rank, row in heat.phases.items()
    }
    return {**bare, "rows": rows, "phases": phases}


def _unpack_heat(told: dict[str, Any]) -> dict[str, Any]:
    return {
        **told,
        "rows": {rank: [RATIOS[one] for one in row] for rank, row in _texts(told.get("rows"))},
        "phases": {
            rank: [one - 1 if one else None for one in row]
            for rank, row in _texts(told.get("phases"))
        },
    }


def _texts(told: Any) -> list[tuple[str, list[int]]]:
    """The rows that are texts, each no longer than the map is wide."""
    rows = told.items() if isinstance(told, dict) else ()
    return [(rank, parse(row[:COLUMNS])) for rank, row in rows if isinstance(row, str)]
