"""Which Unix socket is at the other end of one: the kernel is asked by its own protocol."""

from __future__ import annotations

import socket
import struct

SOCK_DIAG = 4
"""The netlink family of sock_diag(7)."""

BY_FAMILY = 20
REQUEST = 1
SHOW_PEER = 4
PEER = 2
ANY = 0xFFFFFFFF
DEADLINE_S = 0.2

_HEADER = struct.Struct("<IHHII")
_REQUEST = struct.Struct("<BBHIIIII")
_ATTRIBUTE = struct.Struct("<HH")
_NUMBER = struct.Struct("<I")
_MESSAGE_BYTES = 16
"""struct unix_diag_msg, which the attributes follow."""


def read_peer(inode: int) -> int | None:
    """Inode of the socket that this one is connected to; None when the kernel doesn't say, as in
    another network namespace or without its module unix_diag."""
    question = _REQUEST.pack(socket.AF_UNIX, 0, 0, ANY, inode, SHOW_PEER, ANY, ANY)
    header = _HEADER.pack(_HEADER.size + len(question), BY_FAMILY, REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            kernel.settimeout(DEADLINE_S)
            kernel.send(header + question)
            return parse_peer(kernel.recv(4096))
    except OSError:
        return None


def parse_peer(answer: bytes) -> int | None:
    """The other end in such an answer; None for a refusal, or a socket without one."""
    if len(answer) < _HEADER.size or _HEADER.unpack_from(answer)[1] != BY_FAMILY:
        return None
    at = _HEADER.size + _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == PEER and length >= _ATTRIBUTE.size + _NUMBER.size:
            return int(_NUMBER.unpack_from(answer, at + _ATTRIBUTE.size)[0])
        at += (length + 3) & ~3
    return None
