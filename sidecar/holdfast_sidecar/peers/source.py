"""The calling side's words to another node's sidecar: what it has, send it, it is safe here."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.peers.channel import Channel, number
from holdfast_sidecar.peers.framing import FRAME_S, Refused, Wire
from holdfast_sidecar.peers.handshake import Credentials, call
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.slot_copy import Expected
from holdfast_sidecar.peers.transfer import Flow, Partial, receive_slot

CONNECT_S = 5.0

LONGEST_WAIT_S = 5.0
"""The server answers "nothing yet" at least this often, so that a cut link is noticed."""


@dataclass(frozen=True)
class Sealed:
    """A sealed slot that another node told of.

    `room`: the directory that it lies in there. `existing`: newest step its rank knows all have;
    what else that rank had up to `settled` exists nowhere.
    """

    attempt: int
    step: int
    room: str = OWN_DIRECTORY
    existing: int = -1
    settled: int = -1


@dataclass(frozen=True)
class Partner:
    """Another node, and where its sidecar listens for this one's."""

    node: str
    address: str


@dataclass(frozen=True)
class Source:
    """An open channel to a node that has slots."""

    channel: Channel

    def newer(self, rank: int, attempt: int, than: int) -> Sealed | None:
        """The newest sealed step of this rank beyond `than`, waited for; None: nothing yet."""
        answer = self._ask(
            {"ask": "newer", "rank": rank, "attempt": attempt, "than": than},
            LONGEST_WAIT_S + FRAME_S,
        )
        step = number(answer, "step")
        existing, settled = number(answer, "existing"), number(answer, "settled")
        return None if step < 0 else Sealed(attempt, step, existing=existing, settled=settled)

    def has(self, rank: int) -> list[Sealed]:
        """What the node has of this rank: copies, and slots where the rank ran there."""
        answer = self._ask({"ask": "has", "rank": rank}, FRAME_S)
        steps = answer.get("steps")
        if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
            raise Refused("a list of steps that is none")
        return [
            Sealed(number(one, "attempt"), number(one, "step"), str(one.get("room")))
            for one in steps
        ]

    def pull(
        self, room: str, path: Path, expected: Expected, flow: Flow, partial: Partial
    ) -> int | None:
        """Have a slot of that room sent to `path`, but for what is in `partial`; bytes received, or
        None when the node hasn't sealed it (within a short wait)."""
        request = {
            "ask": "slot",
            "room": room,
            "rank": expected.rank,
            "attempt": expected.attempt,
            "step": expected.step,
            **partial.known(path, expected),
        }
        answer = self._ask(request, LONGEST_WAIT_S + FRAME_S)
        if answer.get("found") is not True:
            return None
        # A sidecar that can't go on, or has another slot by now, sends all of it.
        start = number(answer, "from") if "from" in answer else 0
        return receive_slot(self.channel, path, expected, flow, partial, start)

    def confirm(self, rank: int, attempt: int, step: int) -> None:
        """Say that this step is whole and safe here."""
        self._ask({"ask": "confirm", "rank": rank, "attempt": attempt, "step": step}, FRAME_S)

    def _ask(self, request: dict[str, object], within_s: float) -> dict[str, object]:
        self.channel.send(request)
        return self.channel.receive(within_s)


@contextlib.contextmanager
def connected(partner: Partner, own: Credentials, lifeline: Lifeline) -> Iterator[Source]:
    """Connect to a node and prove each other. Raises OSError or Refused."""
    address, node = partner.address, partner.node
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise Refused(f"{address!r} is no address")
    target = (host.strip("[]"), int(port))
    connection = socket.create_connection(target, timeout=CONNECT_S)
    with connection, lifeline.holding(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Source(call(Wire(connection), own, node))
