"""What is known of processes around GPUs: the ranks' own words, and who a GPU's users are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Device:
    """A GPU as torch names it inside a rank; empty where this torch does not tell."""

    uuid: str = ""
    pci: str = ""


@dataclass(frozen=True)
class Seat:
    """A rank of this node, and what its process says of its GPUs."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int = 0
    environment: Mapping[str, str] | None = None
    """Those variables that choose GPUs; None: they may not be read."""
    devices: tuple[Device, ...] = ()
    """Where the parameters lie that its optimizer steps; empty: it has not told."""


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU."""

    pid: int
    name: str = ""
    start_ticks: int = 0
    ancestors: tuple[int, ...] = ()
    """Pids of its parent, of that one's parent, and so on, as of when it was first seen."""


@dataclass(frozen=True)
class Company:
    """Everyone around this node's GPUs."""

    seats: tuple[Seat, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)
    """By pid; one that can't be seen from here is missing."""
    own_pids: frozenset[int] = frozenset()
    """The sidecar and, where it is known, the launcher."""
    sees_all_pids: bool = False
    """Whether pids are counted here as the driver counts them: in the first pid namespace."""

    def slots(self) -> int:
        """How many ranks this node has."""
        return len(self.seats)
