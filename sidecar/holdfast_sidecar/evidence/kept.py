"""The index of what was kept before anything was ended; its presence says that it is on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

INDEX = "kept.json"


@dataclass(frozen=True)
class Kept:
    """What was kept of one incident on this node, and how long that took."""

    incident: str
    ranks: list[int]
    stacks_answered: list[str]
    """Files of the stacks that ranks wrote themselves."""
    spied: list[int] = field(default_factory=list)
    """Ranks whose stacks were read from outside."""
    rings: list[int] = field(default_factory=list)
    """Ranks whose collectives were told by their flight recorders."""
    rings_missing: Mapping[str, str] = field(default_factory=dict)
    """rank -> why its flight recorder told nothing."""
    places: Mapping[str, str] = field(default_factory=dict)
    """rank -> where its main thread stood."""
    seconds: float = 0.0
    at_unix_s: float = 0.0


def is_kept(destination: Path) -> bool:
    """Whether this incident's evidence is on disk already (by an earlier sidecar, say)."""
    return (destination / INDEX).exists()


def write_kept(destination: Path, kept: Kept) -> None:
    """Say that it is on disk."""
    write_file(destination / INDEX, json.dumps(asdict(kept), indent=1).encode())


def read_places(destination: Path) -> dict[str, str]:
    """rank -> where its main thread stood; empty without an index."""
    try:
        found = json.loads((destination / INDEX).read_text()).get("places", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return {str(rank): str(place) for rank, place in found.items()}


def write_file(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)
