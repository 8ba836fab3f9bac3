"""This node's part of a coordinated checkpoint: follows its ranks, then hashes their files.

Hashing runs in a thread and lets go of the interpreter lock, so the sidecar's loop never waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from holdfast.page import Identity, Reply, ReplyState
from holdfast_sidecar.checkpoints.hashing import hash_files, list_files
from holdfast_sidecar.coordination.reports import CheckpointOrder, SavedPart

log = logging.getLogger(__name__)


class Look(Protocol):
    """The part of a look at a rank that matters here."""

    @property
    def identity(self) -> Identity:
        """Whose page it is."""

    @property
    def reply(self) -> Reply | None:
        """Its newest reply to a checkpoint order."""


def states_of(order: CheckpointOrder, looks: Iterable[Look]) -> dict[str, str]:
    """rank -> how far it got with this very order; ranks that said nothing of it are `none`."""
    states = {}
    for look in looks:
        if look.identity.attempt != order.attempt:
            continue
        reply = look.reply
        heard = reply is not None and reply.identifier == order.identifier
        state = reply.state if reply is not None and heard else ReplyState.NONE
        states[str(look.identity.rank)] = state.name.lower()
    return states


@dataclass
class PartHashing:
    """Answers at every tick how far this node's part is, and never waits.

    A part is complete once `files` is filled; until then only the ranks' states are told.
    """

    clock: Callable[[], float] = time.monotonic
    _part: SavedPart | None = None
    _work: _Work | None = field(default=None)

    def follow(self, order: CheckpointOrder | None, looks: Iterable[Look]) -> SavedPart | None:
        """This node's part of `order` as of now; None without an order."""
        if order is None or not order.path:
            return None
        if self._part is None or self._part.identifier != order.identifier:
            self._part, self._work = SavedPart(order.identifier), None
        states = states_of(order, looks) or self._part.states
        part = replace(self._part, states=states)
        saved = bool(states) and all(state == "saved" for state in states.values())
        if saved and order.state == "armed" and self._work is None:
            self._work = _Work(Path(order.path), [int(rank) for rank in states], self.clock)
            self._work.start()
        if self._work is not None:
            part = self._work.result(part)
        self._part = part
        return part

    def wait(self, timeout_s: float) -> bool:
        """Wait for the hashing under way; whether there is none left."""
        return self._work is None or self._work.done.wait(timeout_s)


class _Work:
    """Hashing of one order's files."""

    def __init__(self, directory: Path, ranks: list[int], clock: Callable[[], float]) -> None:
        self._directory = directory
        self._ranks = ranks
        self._clock = clock
        self._outcome: SavedPart | None = None
        self.done = threading.Event()

    def start(self) -> None:
        """Begin, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="checkpoint-hashing", daemon=True).start()

    def result(self, part: SavedPart) -> SavedPart:
        """The part, with files or error once they are known."""
        found = self._outcome
        if found is None:
            return part
        return replace(part, files=found.files, seconds=found.seconds, error=found.error)

    def _run(self) -> None:
        start = self._clock()
        try:
            names = list_files(self._directory, self._ranks)
            files = hash_files(self._directory, names)
            error = "" if files else f"{self._directory} holds no file of ranks {self._ranks}"
        except OSError as failure:
            files, error = {}, f"{self._directory.name}: {failure}"
            log.warning("can't hash checkpoint %s", error)
        self._outcome = SavedPart("", {}, files, self._clock() - start, error)
        self.done.set()
