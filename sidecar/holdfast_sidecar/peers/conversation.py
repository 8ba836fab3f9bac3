"""The serving side of one channel: answers what another node's sidecar asks, until it hangs up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.peers.channel import Channel, number
from holdfast_sidecar.peers.framing import Refused
from holdfast_sidecar.peers.rank_words import Existing
from holdfast_sidecar.peers.seal_watch import SealWatch
from holdfast_sidecar.peers.sealed_slots import HeldSlot, SlotFile, holding, sealed_slots, zones
from holdfast_sidecar.peers.source import LONGEST_WAIT_S
from holdfast_sidecar.peers.transfer import identity_of, send_slot

IDLE_S = 60.0
"""A caller that asks nothing for so long is gone; one that has work asks again at once."""

MOST_TOLD = 16
"""Sealed steps of one rank in an answer: a rank has a handful of slots, and a frame its limit."""

ROOMS = (OWN_DIRECTORY, COPIES_DIRECTORY)


@dataclass(frozen=True)
class Shelves:
    """What there is to serve, and who is to be told what became of it."""

    shm: Path
    watch: SealWatch
    existing: Callable[[int, int], Existing]
    """(attempt, rank) -> what the rank knows of the snapshots there are."""
    confirmed: Callable[[int, int, int], None]
    """(attempt, rank, step): another node has it, whole."""
    served: Callable[[int], None]
    """So many bytes were sent."""


@dataclass(frozen=True)
class Conversation:
    """One caller. Ends by ConnectionResetError when it hangs up; raises Refused, TimeoutError."""

    channel: Channel
    shelves: Shelves
    is_over: Callable[[], bool]

    def hold(self) -> None:
        """Answer until the attempt is over or the caller is gone."""
        answers = {
            "newer": self._newer,
            "slot": self._slot,
            "has": self._has,
            "confirm": self._confirm,
        }
        while not self.is_over():
            request = self.channel.receive(IDLE_S)
            answer = answers.get(str(request.get("ask")))
            if answer is None:
                raise Refused(f"it asks for {request.get('ask')!r}")
            answer(request)

    def _newer(self, request: Mapping[str, Any]) -> None:
        rank, attempt, than = (number(request, name) for name in ("rank", "attempt", "than"))

        def look() -> SlotFile | None:
            found = self._sealed(OWN_DIRECTORY, rank, attempt)
            return found[0] if found and found[0].header.step > than else None

        newest = self._await(look)
        if newest is None:
            self.channel.send({"step": -1, "existing": -1, "settled": -1})
            return
        existing = self.shelves.existing(attempt, rank)
        self.channel.send(
            {
                "step": newest.header.step,
                "existing": existing.newest,
                "settled": existing.settled,
            }
        )

    def _slot(self, request: Mapping[str, Any]) -> None:
        room = request.get("room")
        if room not in ROOMS:
            raise Refused(f"there is no room {room!r}")
        rank, attempt, step = (number(request, name) for name in ("rank", "attempt", "step"))

        def look() -> SlotFile | None:
            slots = self._sealed(room, rank, attempt)
            return next((slot for slot in slots if slot.header.step == step), None)

        found = self._await(look)
        if found is None:
            self.channel.send({"found": False})
            return
        with holding(found.path, attempt, step) as held:
            start = 0 if held is None else _known_part(request, held)
            self.channel.send({"found": held is not None, "from": start})
            if held is not None:
                self.shelves.served(send_slot(self.channel, held, start))

    def _has(self, request: Mapping[str, Any]) -> None:
        rank = number(request, "rank")
        steps = [
            {"room": room, "attempt": slot.header.attempt, "step": slot.header.step}
            for room in ROOMS
            for slot in sealed_slots(self.shelves.shm / room, rank)
        ]
        self.channel.send({"steps": steps[:MOST_TOLD]})

    def _confirm(self, request: Mapping[str, Any]) -> None:
        rank, attempt, step = (number(request, name) for name in ("rank", "attempt", "step"))
        self.shelves.confirmed(attempt, rank, step)
        self.channel.send({})

    def _sealed(self, room: str, rank: int, attempt: int) -> list[SlotFile]:
        slots = sealed_slots(self.shelves.shm / room, rank)
        return [slot for slot in slots if slot.header.attempt == attempt]

    def _await(self, look: Callable[[], SlotFile | None]) -> SlotFile | None:
        """What `look` finds within a while; None: nothing, and the caller asks again."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while True:
            seen = self.shelves.watch.count
            found = look()
            if found is not None or self.is_over() or time.monotonic() > deadline:
                return found
            self.shelves.watch.wait(seen)


def _known_part(request: Mapping[str, Any], held: HeldSlot) -> int:
    """How much of this very slot the caller says it has."""
    if "from" not in request or request.get("identity") != identity_of(held.raw_header):
        return 0
    known, whole = number(request, "from"), sum(size for _, size in zones(held.header))
    if not 0 <= known <= whole:
        raise Refused(f"it has {known} bytes of a slot of {whole}")
    return known
