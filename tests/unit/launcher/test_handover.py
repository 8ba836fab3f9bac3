"""What may be handed over to a warm interpreter."""

from __future__ import annotations

import socket

from holdfast_sidecar.launcher.handover import LARGEST_BYTES, make_handover, receive, send


def test_as_much_as_may_be_sent_arrives_whole() -> None:
    made = make_handover({}, {"HOLDFAST_RESUME": "x" * 70_000}, "/")
    assert made is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, made, [])
        assert receive(theirs) == (made, [])


def test_more_than_can_be_received_means_a_cold_start() -> None:
    assert make_handover({}, {"HOLDFAST_RESUME": "x" * LARGEST_BYTES}, "/") is None
