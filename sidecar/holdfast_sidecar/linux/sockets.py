"""What lies unread in the TCP sockets of a process."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ESTABLISHED = "01"


def read_unread_bytes(proc: Path, pid: int) -> int:
    """Bytes that arrived for this process and that it has not read; 0 where that can't be seen."""
    directory = proc / str(pid)
    try:
        own = read_socket_inodes(directory / "fd")
    except OSError:
        return 0
    waiting: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        try:
            waiting |= parse_unread((directory / "net" / table).read_text())
        except OSError:
            continue
    return sum(count for inode, count in waiting.items() if inode in own)


def parse_unread(table: str) -> Mapping[str, int]:
    """Inode -> bytes in the receive queue, of the connections in a /proc/net/tcp."""
    unread = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == ESTABLISHED:
            unread[fields[9]] = int(fields[4].partition(":")[2], 16)
    return unread


def read_socket_inodes(directory: Path) -> set[str]:
    """Inodes of the sockets among a process's open files. Raises OSError when they are hidden."""
    inodes = set()
    for name in os.listdir(directory):  # noqa: PTH208 - a fifth of what pathlib takes
        try:
            target = os.readlink(f"{directory}/{name}")  # noqa: PTH115 - the same
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes


# Which Unix socket is at the other end of one: the kernel is asked by its own protocol.

SOCK_DIAG = 4
"""The netlink family of sock_diag(7)."""

BY_FAMILY = 20
REQUEST = 1
SHOW_PEER = 4
PEER = 2
ANY = 0xFFFFFFFF
DEADLINE_S = 0.2

_NETLINK_HEADER = struct.Struct("<IHHII")
_REQUEST = struct.Struct("<BBHIIIII")
_ATTRIBUTE = struct.Struct("<HH")
_NUMBER = struct.Struct("<I")
_UNIX_MESSAGE_BYTES = 16
"""struct unix_diag_msg, which the attributes follow."""


def read_peer(inode: int) -> int | None:
    """Inode of the socket that this one is connected to; None when the kernel doesn't say, as in
    another network namespace or without its module unix_diag."""
    question = _REQUEST.pack(socket.AF_UNIX, 0, 0, ANY, inode, SHOW_PEER, ANY, ANY)
    header = _NETLINK_HEADER.pack(_NETLINK_HEADER.size + len(question), BY_FAMILY, REQUEST, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            kernel.settimeout(DEADLINE_S)
            kernel.send(header + question)
            return parse_peer(kernel.recv(4096))
    except OSError:
        return None


def parse_peer(answer: bytes) -> int | None:
    """The other end in such an answer; None for a refusal, or a socket without one."""
    if len(answer) < _NETLINK_HEADER.size or _NETLINK_HEADER.unpack_from(answer)[1] != BY_FAMILY:
        return None
    at = _NETLINK_HEADER.size + _UNIX_MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == PEER and length >= _ATTRIBUTE.size + _NUMBER.size:
            return int(_NUMBER.unpack_from(answer, at + _ATTRIBUTE.size)[0])
        at += (length + 3) & ~3
    return None


# What the kernel knows of TCP sockets, asked over netlink (sock_diag): segments sent again.
#
# Needs no privilege, and sees the network namespace of the process that asks.

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
ERROR, DONE = 2, 3
INET_DIAG_INFO = 2
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8  # ESTABLISHED, FIN_WAIT1 and 2, CLOSE_WAIT

RETRANSMITS_AT = 100
"""Offset of tcpi_total_retrans in struct tcp_info; it has been there since Linux 2.6."""

_HEADER = struct.Struct("=IHHII")
_INET_MESSAGE_BYTES = 72
"""struct inet_diag_msg; its inode is the last word, its cookie two words at 44."""
MOST_BYTES = 16 * 2**20
"""What is read of one answer: some 50,000 sockets. Behind such a crowd nobody looks for ours."""
TIMEOUT_S = 1.0


class NetlinkRefused(OSError):
    """The kernel refused, or has no such thing (`CONFIG_INET_DIAG`)."""


@dataclass(frozen=True)
class Connection:
    """One TCP socket. The cookie tells it from a later one with the same inode."""

    inode: int
    cookie: int
    retransmits: int


def read_connections() -> Mapping[int, Connection]:
    """All connections of this network namespace by inode. Raises OSError."""
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(TIMEOUT_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked.send(request(family))
            for content in _answers(asked):
                found.update({one.inode: one for one in parse_connections(content)})
    return found


def request(family: int) -> bytes:
    """Asks for every TCP socket of one address family."""
    asked = struct.pack(
        "=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, STATES
    )
    size = _HEADER.size + len(asked)
    return _HEADER.pack(size, SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + asked


def parse_connections(content: bytes) -> Iterator[Connection]:
    """The sockets of one datagram; what is cut short is left out."""
    for kind, body in _messages(content):
        if kind == SOCK_DIAG_BY_FAMILY and len(body) >= _INET_MESSAGE_BYTES:
            cookie = struct.unpack_from("=Q", body, 44)[0]
            inode = struct.unpack_from("=I", body, _INET_MESSAGE_BYTES - 4)[0]
            retransmits = _retransmits(body[_INET_MESSAGE_BYTES:])
            if inode and retransmits is not None:
                yield Connection(inode, cookie, retransmits)


def _answers(asked: socket.socket) -> Iterator[bytes]:
    received = 0
    while received < MOST_BYTES:
        content = asked.recv(2**16)
        received += len(content)
        for kind, body in _messages(content):
            if kind == ERROR:
                number = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                raise NetlinkRefused(number, "the kernel does not tell of TCP sockets")
            if kind == DONE:
                return
        yield content
    raise NetlinkRefused("more TCP sockets than are worth looking through")


def _messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(content):
        size, kind, _, _, _ = _HEADER.unpack_from(content, at)
        if size < _HEADER.size:
            return
        yield kind, content[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _retransmits(attributes: bytes) -> int | None:
    at = 0
    while at + 4 <= len(attributes):
        size, kind = struct.unpack_from("=HH", attributes, at)
        if size < 4:
            return None
        if kind == INET_DIAG_INFO and size >= 4 + RETRANSMITS_AT + 4:
            return int(struct.unpack_from("=I", attributes, at + 4 + RETRANSMITS_AT)[0])
        at += (size + 3) & ~3
    return None
