"""Room where checkpoints, state and pages go, each asked in a thread of its own.

statvfs on a network file system whose server is away never answers. The thread that asks then waits
until it does: nobody asks a second time, and the other rooms are read on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.linux.probe_runner import Patient, SilentError
from holdfast_sidecar.readings.host import Room

DEADLINE_S = 0.25
"""For each room, in the loop's own time: a local file system answers in microseconds, a network one
in milliseconds. Whoever needs longer answers at the next look."""


@dataclass(frozen=True)
class RoomProbe:
    """Of one purpose."""

    purpose: str
    path: Path

    @property
    def name(self) -> str:
        """Of its thread."""
        return f"room-{self.purpose}"

    def read(self, now_s: float) -> Room | None:
        """A directory that isn't there yet is measured where it would be made. OSError where the
        file system refuses."""
        return read_room(self.path)


@dataclass(frozen=True)
class Rooms:
    """What the rooms said, and since when others have not."""

    rooms: Mapping[str, Room]
    silent: Mapping[str, float]


@dataclass
class RoomsProbe:
    """All rooms by purpose."""

    paths: Mapping[str, Path]
    name: str = "rooms"
    deadline_s: float = DEADLINE_S
    _patients: dict[str, Patient[Room | None]] = field(default_factory=dict)
    _asked_s: dict[str, float] = field(default_factory=dict)

    def read(self, now_s: float) -> Rooms:
        """Whoever answers; a room that has never existed is left out."""
        rooms = {}
        for purpose, path in self.paths.items():
            patient = self._patients.setdefault(
                purpose, Patient(RoomProbe(purpose, path), self.deadline_s)
            )
            try:
                room = patient.read(now_s)
            except SilentError:
                self._asked_s.setdefault(purpose, now_s)
                continue
            except OSError:
                room = None
            self._asked_s.pop(purpose, None)
            if room is not None:
                rooms[purpose] = room
        return Rooms(rooms, {purpose: now_s - at_s for purpose, at_s in self._asked_s.items()})


def read_room(path: Path) -> Room | None:
    """One room; None when nothing of its path is there. May wait for ever; OSError."""
    existing = next((place for place in (path, *path.parents) if place.exists()), None)
    if existing is None:
        return None
    facts = os.statvfs(existing)
    return Room(
        size_bytes=facts.f_blocks * facts.f_frsize,
        available_bytes=facts.f_bavail * facts.f_frsize,
        files=facts.f_files or None,
        files_available=facts.f_favail if facts.f_files else None,
        device=existing.stat().st_dev,
    )
