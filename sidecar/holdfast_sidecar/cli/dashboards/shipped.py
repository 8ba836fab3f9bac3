"""The dashboards that this installation has."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.grafana.board import Board, read_boards


def shipped_folder() -> Path:
    """Where they lie; BadInput where this installation has none."""
    try:
        return asset("dashboards")
    except FileNotFoundError as error:
        raise BadInput(str(error)) from None


def shipped_boards() -> list[Board]:
    """All of them; BadInput where they can't be read."""
    folder = shipped_folder()
    try:
        boards = read_boards(folder)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"the dashboards in {folder} can't be read: {error}") from None
    if not boards:
        raise BadInput(f"no dashboards in {folder}: install Holdfast anew")
    return boards
