"""Segments that are really lost, and really sent again."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time

from holdfast_sidecar.components.network.tcp import TcpProbe

SO_ATTACH_FILTER = 26


def drop_everything(end: socket.socket) -> None:
    """Have the kernel drop what arrives here: a filter of one instruction, `return 0`."""
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(instruction))
    end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def test_segments_that_get_lost_are_counted_for_their_rank() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    probe = TcpProbe(lambda: {5: os.getpid()})
    with near, far:
        before = probe.read(0.0)
        drop_everything(far)
        near.send(b"lost")
        until = time.monotonic() + 10
        while (after := probe.read(1.0)).by_rank == before.by_rank and time.monotonic() < until:
            time.sleep(0.05)
    assert after.by_rank[5] > before.by_rank[5]
    assert after.of_host is not None
    assert before.of_host is not None
    assert after.of_host > before.of_host
