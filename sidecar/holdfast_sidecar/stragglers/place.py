"""Where a rank stands: on which node, with whom it is compared, in which process groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Group:
    """A process group as all its members tell it alike."""

    title: str
    """What torch calls its purpose: `default_pg`, `mesh_dp`; may be empty."""
    digest: str
    """Of its members: ranks that tell the same one are in it together."""
    size: int


@dataclass(frozen=True)
class Place:
    """One rank."""

    rank: int
    node: str
    role: str = ""
    """Ranks of equal role have the same kind of work: they are compared with one another."""
    coordinate: Mapping[str, int] = field(default_factory=dict)
    """Dimension of the parallel layout (`dp`, `tp`, `pp`) -> where it stands; empty: not known."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Dimension -> how many there are."""
    groups: tuple[Group | None, ...] = (None, None, None, None)
    """Those whose waits its lines tell apart, in their order."""
