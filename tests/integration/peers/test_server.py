"""Who gets in at the peer server, and who is kept out."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.checkpoint.replication.slots import write_slot

from holdfast_sidecar.checkpoint.replication import server as server_module
from holdfast_sidecar.checkpoint.replication.fetch import TransferCounts
from holdfast_sidecar.checkpoint.replication.server import Hosting, PeerServer
from holdfast_sidecar.checkpoint.replication.slots import Expected
from holdfast_sidecar.checkpoint.replication.transfer import Flow, Partial, Partner, connected
from holdfast_sidecar.checkpoint.replication.wire import (
    Bucket,
    CancelToken,
    Channel,
    PeerCredentials,
    ProtocolError,
    Throttle,
    Wire,
    call,
)

SERVER = PeerCredentials("job", 0, "a", bytes(32))
CLIENT = PeerCredentials("job", 0, "b", bytes(32))
PATIENCE_S = 10.0


def echo(channel: Channel, is_over: Callable[[], bool]) -> None:
    while not is_over():
        channel.send(channel.receive())


@pytest.fixture
def server() -> Iterator[PeerServer]:
    made = PeerServer(("127.0.0.1", 0), echo, handshake_s=0.3)
    made.start()
    made.admit(SERVER)
    yield made
    made.close()


def dial(server: PeerServer) -> socket.socket:
    host, _, port = server.address("").rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S)
    connection.settimeout(PATIENCE_S)
    return connection


def is_shut(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def test_who_knows_the_key_is_served_until_the_attempt_is_over(server: PeerServer) -> None:
    with dial(server) as connection:
        channel = call(Wire(connection), CLIENT, "a")
        channel.send({"n": 1})
        assert channel.receive() == {"n": 1}
        server.admit(PeerCredentials("job", 1, "a", bytes(32)))
        assert is_shut(connection)
    with dial(server) as connection, pytest.raises((ProtocolError, OSError)):
        call(Wire(connection), CLIENT, "a")
    assert server.counts.refused == 1


def test_before_an_attempt_runs_nobody_is_served(server: PeerServer) -> None:
    server.admit(None)
    with dial(server) as connection:
        assert is_shut(connection)


def test_who_says_nothing_or_drips_is_shut_out(server: PeerServer) -> None:
    with dial(server) as silent, dial(server) as dripping:
        dripping.sendall(b"\x01\x40\x00\x00\x00{")
        assert is_shut(silent)
        assert is_shut(dripping)
    until(lambda: server.counts.refused == 2)


def test_strangers_are_bounded_and_do_not_take_the_place_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MOST_STRANGERS", 3)
    monkeypatch.setattr(server_module, "MOST_CALLERS", 2)
    server = PeerServer(("127.0.0.1", 0), echo)
    server.start()
    server.admit(SERVER)
    try:
        known = [dial(server) for _ in range(2)]
        for connection in known[:1]:
            call(Wire(connection), CLIENT, "a")
        strangers = [dial(server) for _ in range(4)]
        assert is_shut(strangers[-1])
        channel = call(Wire(known[1]), CLIENT, "a")
        channel.send({"n": 2})
        assert channel.receive() == {"n": 2}
        for connection in (*known, *strangers):
            connection.close()
    finally:
        server.close()


def test_a_callers_end_is_no_offence(server: PeerServer) -> None:
    with dial(server) as connection:
        call(Wire(connection), CLIENT, "a").send({})
    with dial(server) as connection:
        channel = call(Wire(connection), CLIENT, "a")
        channel.send({"still": "there"})
        assert channel.receive() == {"still": "there"}
    assert server.counts.refused == 0


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        (("127.0.0.1", 0), "127.0.0.1:{port}"),
        (("0.0.0.0", 0), "10.1.2.3:{port}"),
        (("::1", 0), "[::1]:{port}"),
        (("::", 0), "10.1.2.3:{port}"),
    ],
    ids=["loopback", "everywhere", "loopback of IPv6", "everywhere of IPv6"],
)
def test_the_address_that_others_are_told(listen: tuple[str, int], address: str) -> None:
    if ":" in listen[0] and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = PeerServer(listen, echo)
    assert server.address("10.1.2.3") == ""
    server.start()
    try:
        told = server.address("10.1.2.3")
        assert told == address.format(port=told.rpartition(":")[2])
    finally:
        server.close()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_copy_goes_over_ipv6(tmp_path: Path) -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    hosting = Hosting(tmp_path / "a", "[::1]:0", TransferCounts())
    write_slot(tmp_path / "a", 3, 0, 7, data=b"weights")
    hosting.open()
    hosting.admit(SERVER)
    lifeline = CancelToken()
    try:
        with connected(Partner("a", hosting.address("")), CLIENT, lifeline) as source:
            flow = Flow(Throttle(Bucket(0)), lifeline)
            target = tmp_path / "b" / "rank-3-slot-0"
            for _ in range(2):
                expected = Expected("job", 3, 0, 7)
                assert source.pull("snapshots", target, expected, flow, Partial())
    finally:
        hosting.close()


def test_an_address_that_can_not_be_had_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        hosting = Hosting(tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", TransferCounts())
        hosting.open()
        hosting.open()
    assert "in use" in hosting.obstacle
    assert len(caplog.records) == 1
    assert hosting.address("127.0.0.1") == ""
    hosting.close()
    nonsense = Hosting(tmp_path, "nowhere", TransferCounts())
    nonsense.open()
    assert "HOST:PORT" in nonsense.obstacle


def test_nonsense_from_someone_with_the_key_ends_his_conversation_and_no_other(
    tmp_path: Path,
) -> None:
    tally = TransferCounts()
    hosting = Hosting(tmp_path, "127.0.0.1:0", tally)
    hosting.open()
    hosting.admit(SERVER)
    hosting.speak_to(0)
    chance = random.Random(7)
    lifeline = CancelToken()
    partner = Partner("a", hosting.address(""))
    try:
        with connected(partner, CLIENT, lifeline) as honest:
            for _ in range(60):
                with connected(partner, CLIENT, lifeline) as source:
                    source.channel.send(nonsense(chance))
                    with pytest.raises((ProtocolError, OSError)):
                        source.channel.receive(PATIENCE_S)
            assert honest.has(3) == []
        until(lambda: hosting.refused == 60)
    finally:
        hosting.close()


def nonsense(chance: random.Random) -> dict[str, object]:
    """A message that no honest caller sends."""
    odd: list[object] = [None, "7", [], {}, 1.5, True, "../../etc", "x" * 900]
    ask = chance.choice(["newer", "slot", "has", "confirm", "open", None, 7, ["slot"]])
    message: dict[str, object] = {"ask": ask, "room": chance.choice(["..", "copies", 0, None])}
    message["rank"] = chance.choice(odd)
    for name in ("attempt", "step", "than"):
        if chance.random() < 0.7:
            message[name] = chance.choice(odd)
    assert len(json.dumps(message)) < 4096
    return message


def until(is_so: Callable[[], bool]) -> None:
    """Wait for the server's threads to have counted."""
    waited = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if is_so():
            return
        waited.wait(0.01)
    raise AssertionError("never")
