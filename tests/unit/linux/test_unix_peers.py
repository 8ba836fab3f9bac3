from __future__ import annotations

import os
import socket
import struct

from holdfast_sidecar.linux.sockets import parse_peer, read_peer


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def test_the_kernel_tells_the_other_end_of_a_unix_socket() -> None:
    first, second = socket.socketpair()
    with first, second:
        told = read_peer(inode(first))
        assert told in (inode(second), None), "None: a kernel without unix_diag"
        second.close()
        assert not read_peer(inode(first))


def test_what_has_no_other_end_or_is_unknown_has_none() -> None:
    with socket.socket(socket.AF_UNIX) as alone:
        assert read_peer(inode(alone)) is None
    assert read_peer(4_000_000_000) is None


def test_an_answer_is_read_whatever_comes_before_the_peer_in_it() -> None:
    message = bytes(16)
    shutdown = struct.pack("<HHB3x", 5, 6, 0)
    peer = struct.pack("<HHI", 8, 2, 7002)
    answer = struct.pack("<IHHII", 16, 20, 0, 0, 0) + message
    assert parse_peer(answer + shutdown + peer) == 7002
    assert parse_peer(answer + shutdown) is None
    assert parse_peer(answer + struct.pack("<HH", 0, 2)) is None
    assert parse_peer(struct.pack("<IHHIIi", 20, 2, 0, 0, 0, -2)) is None
    assert parse_peer(b"") is None
