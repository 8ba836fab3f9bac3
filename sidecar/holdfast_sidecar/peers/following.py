"""Peer copies in step: pulls every snapshot of one rank of another node as soon as it is sealed,
and confirms each, for which that rank waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.means import FAILURES, Means, pause_s
from holdfast_sidecar.peers.slot_copy import Expected
from holdfast_sidecar.peers.source import Partner, Sealed, Source, connected
from holdfast_sidecar.peers.transfer import Partial

log = logging.getLogger(__name__)

FULL_S = 0.05
"""Between looks whether a file may be overwritten, once none may: who knows of a newer snapshot
that exists says so within a heartbeat."""


@dataclass(frozen=True)
class Followed:
    """Whom to follow."""

    partner: Partner
    rank: int
    attempt: int


class Following:
    """One rank's copies, in a thread of its own from `start` until cut."""

    def __init__(self, followed: Followed, means: Means, existing: Callable[[], int]) -> None:
        """`existing`: newest step of this attempt that some node reported to exist on all ranks."""
        self._followed = followed
        self._means = means
        self._existing = existing
        self._lifeline = Lifeline()
        self._partial = Partial()

    def start(self) -> bool:
        """Begin; False where no thread is left."""
        return start_thread(self._run, "peer-follow") is not None

    def cut(self) -> None:
        """Leave it; a half copy stays torn."""
        self._lifeline.cut()

    def _run(self) -> None:
        try:
            self._follow_on()
        finally:
            self._partial.close()

    def _follow_on(self) -> None:
        failures = 0
        while not self._lifeline.is_cut:
            try:
                with connected(self._followed.partner, self._means.own, self._lifeline) as source:
                    failures = 0
                    self._follow(source)
            except FAILURES as error:
                if self._lifeline.is_cut:
                    return
                log.info("can't follow rank %d: %s", self._followed.rank, error)
                self._means.tally.failed()
                self._lifeline.wait(pause_s(failures))
                failures += 1

    def _follow(self, source: Source) -> None:
        rank, attempt = self._followed.rank, self._followed.attempt
        newest = self._means.copies.newest(rank, attempt)
        if newest >= 0:  # a sidecar that was restarted, or a connection that broke before this
            source.confirm(rank, attempt, newest)
        while not self._lifeline.is_cut:
            sealed = source.newer(rank, attempt, newest)
            if sealed is not None and self._bring(source, sealed):
                newest = sealed.step
                source.confirm(rank, attempt, newest)

    def _bring(self, source: Source, sealed: Sealed) -> bool:
        rank, attempt = self._followed.rank, self._followed.attempt
        path = self._room(sealed.existing, sealed.settled) or self._room(self._existing())
        if path is None:
            self._lifeline.wait(FULL_S)
            return False
        expected = Expected(self._means.own.job, rank, attempt, sealed.step)
        flow = self._means.flow(self._lifeline)
        return self._means.pull(source, OWN_DIRECTORY, path, expected, flow, self._partial)

    def _room(self, existing: int, settled: int = -1) -> Path | None:
        rank, attempt = self._followed.rank, self._followed.attempt
        return self._means.copies.next_path(
            rank, attempt, existing, settled=settled, may_be_newest=True
        )
