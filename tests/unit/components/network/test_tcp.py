"""Retransmissions: real sockets of this process, and what netlink would say of others."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from holdfast_sidecar.components.network.tcp import TcpProbe, parse_retransmits
from holdfast_sidecar.linux.sockets import (
    Connection,
    NetlinkRefused,
    parse_connections,
    read_connections,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    with near, far:
        yield near, far


def inode_of(connection: socket.socket) -> int:
    return os.fstat(connection.fileno()).st_ino


def test_own_connections_are_found_by_inode(pair: tuple[socket.socket, socket.socket]) -> None:
    found = read_connections()
    for end in pair:
        assert found[inode_of(end)].retransmits == 0
        assert found[inode_of(end)].cookie > 0


def test_connections_over_ipv6_are_found_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        address = listening.getsockname()[:2]
        with socket.create_connection(address) as near:
            assert inode_of(near) in read_connections()


class Kernel:
    """What it says of connections, as a test sets it."""

    def __init__(self) -> None:
        self.said: dict[int, Connection] = {}

    def tell(self, end: socket.socket, retransmits: int, cookie: int = 1) -> None:
        self.said[inode_of(end)] = Connection(inode_of(end), cookie, retransmits)

    def __call__(self) -> Mapping[int, Connection]:
        return self.said


def test_what_a_rank_sent_again_goes_on_over_sockets_that_come_and_go(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    kernel = Kernel()
    probe = TcpProbe(lambda: {3: os.getpid()}, read_connections=kernel)
    kernel.tell(pair[0], 2)
    assert probe.read(0.0).by_rank == {3: 2}
    kernel.tell(pair[0], 5)
    kernel.tell(pair[1], 1, cookie=2)
    assert probe.read(30.0).by_rank == {3: 6}
    kernel.tell(pair[0], 4, cookie=9)  # another socket with the same inode
    assert probe.read(60.0).by_rank == {3: 10}
    kernel.said.clear()
    assert probe.read(90.0).by_rank == {3: 10}


def test_open_files_are_looked_through_only_for_new_sockets_and_rarely(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def counted(directory: Path) -> set[str]:
        looks.append(directory)
        return {str(inode_of(end)) for end in pair}

    monkeypatch.setattr("holdfast_sidecar.components.network.tcp.read_socket_inodes", counted)
    kernel = Kernel()
    probe = TcpProbe(lambda: {3: os.getpid()}, read_connections=kernel)
    kernel.tell(pair[0], 2)
    probe.read(0.0)
    probe.read(100.0)
    assert len(looks) == 1
    kernel.tell(pair[1], 1, cookie=2)
    assert probe.read(110.0).by_rank == {3: 3}
    kernel.tell(pair[1], 1, cookie=3)
    assert probe.read(120.0).by_rank == {3: 3}
    assert probe.read(140.0).by_rank == {3: 4}
    assert len(looks) == 3


def test_a_rank_whose_sockets_cannot_be_seen_is_absent_and_not_0(tmp_path: Path) -> None:
    elsewhere = tmp_path / "7/ns"
    elsewhere.mkdir(parents=True)
    (elsewhere / "net").symlink_to("net:[1]")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/net").symlink_to("net:[2]")
    probe = TcpProbe(lambda: {0: 7, 1: 8}, proc=tmp_path, read_connections=Kernel())
    reading = probe.read(0.0)
    assert (reading.by_rank, reading.of_host) == ({}, None)


def test_a_kernel_that_refuses_is_a_failure_of_the_probe() -> None:
    def refuse() -> Mapping[int, Connection]:
        raise NetlinkRefused(2, "the kernel does not tell of TCP sockets")

    with pytest.raises(NetlinkRefused):
        TcpProbe(lambda: {0: os.getpid()}, read_connections=refuse).read(0.0)


def test_without_ranks_the_kernel_is_not_asked() -> None:
    def never() -> Mapping[int, Connection]:
        raise AssertionError

    assert TcpProbe(dict, read_connections=never).read(0.0).by_rank == {}


def test_the_hosts_own_count_is_read_by_name() -> None:
    snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoMin InSegs RetransSegs\nTcp: 200 7 42\n"
    assert parse_retransmits(snmp) == 42
    assert parse_retransmits("Tcp: RetransSegs\n") is None
    assert parse_retransmits("Tcp: RetransSegs\nTcp: many\n") is None


@pytest.mark.parametrize("size", [0, 10, 17, 88, 90, 120])
def test_an_answer_that_is_cut_short_says_nothing(size: int) -> None:
    whole = struct.pack("=IHHII", 300, 20, 0, 1, 0) + bytes(284)
    assert list(parse_connections(whole[:size])) == []
