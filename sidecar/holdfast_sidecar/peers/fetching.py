"""Before an attempt resumes: brings the copies of this node's ranks from the nodes that hold them
into the ranks' own slots, and leaves word for the ranks, who wait for it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from holdfast.snapshot_file import FETCHED_PREFIX, OWN_DIRECTORY, fetched_name, slot_name
from holdfast_sidecar.decisions.peering import Copy
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.means import FAILURES, Means, pause_s
from holdfast_sidecar.peers.sealed_slots import read_slots
from holdfast_sidecar.peers.slot_copy import Expected
from holdfast_sidecar.peers.source import Partner, Sealed, Source, connected

log = logging.getLogger(__name__)

UNREACHED_S = 30.0
"""For a holder that can't be reached or breaks off: its sidecar may just be starting again."""

MOST_FETCHED = 2
"""As many as there are copies; one of them was through, or both are."""


def marker_path(shm: Path, attempt: int) -> Path:
    """Where the ranks of an attempt look for word of what was fetched."""
    return shm / fetched_name(attempt)


class Fetching:
    """All of one node's fetches for one attempt, in a thread of its own."""

    def __init__(
        self,
        shm: Path,
        holders: Mapping[int, str],
        partner: Callable[[str], Partner],
        means: Means,
        guess: int = -1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """holders: rank of this node -> node that has its copies. partner: how to call a node now
        (raises OSError). guess: the step that the leader expects all ranks to have; -1: none."""
        self._shm = shm
        self._holders = dict(holders)
        self._partner = partner
        self._means = means
        self._guess = guess
        self._clock = clock
        self._lifeline = Lifeline()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self.run, name="peer-fetch", daemon=True).start()

    def cut(self) -> None:
        """Leave it: the attempt is over."""
        self._lifeline.cut()

    def run(self) -> None:
        """Fetch everything, then leave word."""
        reasons = []
        started_s = self._clock()
        for rank, node in sorted(self._holders.items()):
            reason = self._fetch_patiently(rank, node)
            if reason:
                reasons.append(f"rank {rank}: {reason}")
        if self._lifeline.is_cut:
            return
        leave_word(self._shm, self._means.attempt, "; ".join(reasons))
        took_s = self._clock() - started_s
        ranks = ", ".join(str(rank) for rank in sorted(self._holders))
        outcome = "; ".join(reasons) or "done"
        log.info("fetched snapshots of ranks %s in %.2f s: %s", ranks, took_s, outcome)

    def _fetch_patiently(self, rank: int, node: str) -> str:
        """Why this rank has none of its copies now; empty when it has."""
        failures, since_s = 0, self._clock()
        while True:
            try:
                with connected(self._partner(node), self._means.own, self._lifeline) as source:
                    return self._fetch(source, rank)
            except FAILURES as error:
                self._means.tally.failed()
                if self._lifeline.is_cut or self._clock() - since_s > UNREACHED_S:
                    return f"node {node}: {error or type(error).__name__}"
            self._lifeline.wait(pause_s(failures))
            failures += 1

    def _fetch(self, source: Source, rank: int) -> str:
        """Bring the likeliest step and the next best one: which of them all ranks have is for the
        ranks to say."""
        offered = sorted(source.has(rank), key=self._likelihood, reverse=True)[:MOST_FETCHED]
        wanted = {Copy(one.attempt, one.step): one for one in offered}
        brought = 0
        for copy, one in wanted.items():
            path = self._room_for(rank, copy, wanted.keys())
            if path is None:
                brought += 1
                continue
            expected = Expected(self._means.own.job, rank, copy.attempt, copy.step)
            brought += self._means.pull(source, one.room, path, expected, self._lifeline)
        return "" if brought else "the node that should have it has none of its steps"

    def _likelihood(self, sealed: Sealed) -> tuple[bool, int, int]:
        return sealed.step == self._guess, sealed.attempt, sealed.step

    def _room_for(self, rank: int, copy: Copy, wanted: Collection[Copy]) -> Path | None:
        """An own slot that holds none of what is wanted: a torn one, a new one, or the oldest.

        None: it is here already.
        """
        directory = self._shm / OWN_DIRECTORY
        slots = {slot.index: slot.header for slot in read_slots(directory, rank)}
        sealed = {
            index: Copy(header.attempt, header.step)
            for index, header in slots.items()
            if header.sealed_step is not None
        }
        if copy in sealed.values():
            return None
        free = sorted(slots.keys() - sealed.keys())
        if not free and len(slots) < MOST_FETCHED:
            free = sorted(set(range(MOST_FETCHED)) - slots.keys())
        others = [index for index in sealed if sealed[index] not in wanted]
        free += sorted(others, key=lambda index: (sealed[index].attempt, sealed[index].step))
        return directory / slot_name(rank, free[0])


def leave_word(shm: Path, attempt: int, reason: str) -> None:
    """Tell the ranks that all is here (no reason), or why not; earlier words go."""
    path = marker_path(shm, attempt)
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(json.dumps({"ok": not reason, "reason": reason}))
    temporary.replace(path)
    for other in shm.glob(f"{FETCHED_PREFIX}*"):
        if other != path:
            other.unlink(missing_ok=True)
