"""What every kind of transfer needs: who asks, where copies go, how fast, and who counts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.peers.bandwidth import Throttle
from holdfast_sidecar.peers.copies import Copies
from holdfast_sidecar.peers.framing import Refused
from holdfast_sidecar.peers.handshake import Credentials
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.slot_copy import Expected, SlotBusy
from holdfast_sidecar.peers.source import Source
from holdfast_sidecar.peers.tally import Tally
from holdfast_sidecar.peers.transfer import Flow, GivenUp, Partial
from holdfast_sidecar.snapshots.slot_files import NAMED
from holdfast_sidecar.snapshots.slot_memory import SlotMemory

FAILURES = (OSError, Refused, SlotBusy, GivenUp)
"""What a transfer may end with; the other node, the network and our own memory are all in it."""

AGAIN_S = 0.2
LONGEST_AGAIN_S = 2.0


@dataclass(frozen=True)
class Means:
    """Shared by the transfers of one attempt."""

    own: Credentials
    copies: Copies
    throttle: Throttle
    tally: Tally
    memory: SlotMemory = NAMED

    @property
    def attempt(self) -> int:
        """The attempt that it belongs to."""
        return self.own.attempt

    def pull(
        self,
        source: Source,
        room: str,
        path: Path,
        expected: Expected,
        flow: Flow,
        partial: Partial,
    ) -> bool:
        """Have one slot sent to `path`; False when it is not there (yet). Raises FAILURES.

        partial: what came of it over earlier connections.
        """
        started_s = time.monotonic()
        size = source.pull(room, path, expected, flow, partial)
        if size is None:
            return False
        self.tally.received(size, time.monotonic() - started_s)
        return True

    def flow(
        self, lifeline: Lifeline, *, is_capped: bool = True, until_s: float = math.inf
    ) -> Flow:
        """What a transfer keeps to. is_capped: within `snapshot.peer_bandwidth`, which leaves the
        network to the training."""
        return Flow(self.throttle if is_capped else None, lifeline, self.memory, until_s)


def pause_s(failures: int) -> float:
    """How long to leave another node alone after so many failures in a row."""
    return min(AGAIN_S * 2.0 ** min(failures, 10), LONGEST_AGAIN_S)
