"""Frames and proofs over a socket pair, one end of which is honest."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast_sidecar.checkpoint.replication.wire import (
    CHUNK_SIZE,
    HEADER,
    LIMITS,
    Channel,
    FrameKind,
    PeerCredentials,
    ProtocolError,
    Wire,
    answer,
    call,
    number,
)

SERVER = PeerCredentials("job", 3, "a", bytes(32))
CLIENT = PeerCredentials("job", 3, "b", bytes(32))
SOON_S = 5.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


@dataclass
class Answering:
    """The serving side in a thread, and what came of it."""

    end: socket.socket
    own: PeerCredentials = SERVER
    channel: Channel | None = None
    error: Exception | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        try:
            self.channel = answer(Wire(self.end), self.own, SOON_S)
        except (ProtocolError, OSError) as error:
            self.error = error
            self.end.close()

    def finish(self) -> Answering:
        self._thread.join(SOON_S)
        return self


def both(ends: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    serving = Answering(ends[0])
    client = call(Wire(ends[1]), CLIENT, "a", SOON_S)
    server = serving.finish().channel
    assert server is not None
    return client, server


def test_two_that_know_the_key_talk_both_ways(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = both(ends)
    assert (client.other, server.other) == ("a", "b")
    client.send({"ask": "newer", "rank": 1})
    assert server.receive() == {"ask": "newer", "rank": 1}
    server.send({"step": 7})
    server.send_chunk(memoryview(b"x" * 1000))
    assert client.receive() == {"step": 7}
    room = memoryview(bytearray(CHUNK_SIZE))
    assert client.receive_chunk(room) == 1000
    assert bytes(room[:1000]) == b"x" * 1000


@pytest.mark.parametrize(
    ("own", "expected", "server_says"),
    [
        (PeerCredentials("job", 3, "b", b"1" * 32), "a", "hung up"),
        (PeerCredentials("job", 2, "b", bytes(32)), "a", "attempt 2 where it is 3"),
        (PeerCredentials("other", 3, "b", bytes(32)), "a", "job 'other' where it is 'job'"),
        (CLIENT, "c", "hung up"),
    ],
    ids=["another key", "an earlier attempt", "another job", "not the node that was called"],
)
def test_no_channel_comes_about_with(
    own: PeerCredentials, expected: str, server_says: str, ends: tuple[socket.socket, socket.socket]
) -> None:
    serving = Answering(ends[0])
    with pytest.raises((ProtocolError, OSError)):
        call(Wire(ends[1]), own, expected, SOON_S)
    ends[1].close()
    assert server_says in str(serving.finish().error)


def test_a_caller_without_the_key_can_not_prove_itself(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    serving = Answering(ends[0])
    wire, hello = Wire(ends[1]), {"protocol": 1, "job": "job", "attempt": 3, "name": "b"}
    say(wire, {**hello, "nonce": "0" * 64})
    theirs = hear(wire)
    say(wire, {"proof": theirs["proof"]})  # the server's own, sent back
    assert "does not know" in str(serving.finish().error)


def test_a_recorded_conversation_does_not_fit_again(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    recorder, server_end = Recorder(ends[1]), ends[0]
    serving = Answering(server_end)
    client = call(Wire(recorder), CLIENT, "a", SOON_S)  # type: ignore[arg-type]
    client.send({"ask": "confirm", "rank": 0, "attempt": 3, "step": 9})
    first = serving.finish().channel
    assert first is not None
    assert first.receive()["step"] == 9

    again, client_again = socket.socketpair()
    with again, client_again:
        serving = Answering(again)
        client_again.sendall(bytes(recorder.sent))
        assert "does not know" in str(serving.finish().error)


@dataclass
class Recorder:
    """A socket that remembers what was sent through it, and may change it."""

    inner: socket.socket
    change: Callable[[bytes], bytes] = lambda data: data
    sent: bytearray = field(default_factory=bytearray)

    def settimeout(self, seconds: float) -> None:
        self.inner.settimeout(seconds)

    def sendall(self, data: bytes) -> None:
        changed = self.change(bytes(data))
        self.sent += changed
        self.inner.sendall(changed)

    def recv_into(self, room: memoryview) -> int:
        return self.inner.recv_into(room)


def test_a_repeated_a_dropped_and_an_altered_frame_are_refused() -> None:
    for fault in ("repeated", "dropped", "altered", "of another kind"):
        one, other = socket.socketpair()
        with one, other:
            recorder = Recorder(other)
            serving = Answering(one)
            client = call(Wire(recorder), CLIENT, "a", SOON_S)  # type: ignore[arg-type]
            server = serving.finish().channel
            assert server is not None
            recorder.sent.clear()
            client.send({"step": 1})
            assert server.receive() == {"step": 1}
            if fault == "repeated":
                other.sendall(recorder.sent)
            elif fault == "dropped":
                client._sent += 1
                client.send({"step": 2})
            elif fault == "altered":
                recorder.change = lambda data: data.replace(b"2", b"3")
                client.send({"step": 2})
            else:
                client.send_chunk(memoryview(b"step"))
            with pytest.raises(ProtocolError, match=r"altered|kind"):
                server.receive()


def test_what_goes_out_does_not_come_back_in(ends: tuple[socket.socket, socket.socket]) -> None:
    """Each direction has its own key: a frame that is mirrored is no frame."""
    recorder = Recorder(ends[1])
    serving = Answering(ends[0])
    client = call(Wire(recorder), CLIENT, "a", SOON_S)  # type: ignore[arg-type]
    assert serving.finish().channel is not None
    recorder.sent.clear()
    client.send({"step": 1})
    ends[0].sendall(recorder.sent)
    with pytest.raises(ProtocolError, match="altered"):
        client.receive()


@pytest.mark.parametrize("kind", list(FrameKind))
def test_more_than_a_frame_may_hold_is_refused_before_it_is_read(
    kind: FrameKind, ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[1].sendall(HEADER.pack(kind, LIMITS[kind] + 1))
    with pytest.raises(ProtocolError, match="where none may be"):
        Wire(ends[0]).receive(kind, memoryview(bytearray(2 * CHUNK_SIZE)), 0, SOON_S)


def test_a_chunk_larger_than_what_is_left_is_refused(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = both(ends)
    client.send_chunk(memoryview(bytes(101)))
    with pytest.raises(ProtocolError, match="101 bytes"):
        server.receive_chunk(memoryview(bytearray(100)))


def test_an_empty_chunk_does_not_keep_a_transfer_going(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = both(ends)
    client.send_chunk(memoryview(b""))
    with pytest.raises(ProtocolError, match="empty"):
        server.receive_chunk(memoryview(bytearray(100)))


def test_a_caller_that_drips_is_not_waited_for_beyond_the_limit_of_the_whole() -> None:
    """Each read is answered in time; the clock, moved by the test, says that it took too long."""
    clock = iter(range(100))
    one, other = socket.socketpair()
    with one, other:
        other.sendall(b"\x01")

        class Dripping:
            def settimeout(self, seconds: float) -> None:
                one.settimeout(seconds)

            def recv_into(self, room: memoryview) -> int:
                got = one.recv_into(room)
                other.sendall(b"\x00")
                return got

        wire = Wire(Dripping(), lambda: float(next(clock)))  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            wire.receive(FrameKind.HELLO, memoryview(bytearray(1024)), 0, 4.0)


def test_garbage_never_becomes_a_channel_nor_anything_but_a_refusal() -> None:
    for seed in range(150):
        chance = random.Random(seed)
        one, other = socket.socketpair()
        with one, other:
            other.sendall(garbage(chance))
            other.shutdown(socket.SHUT_WR)
            with pytest.raises((ProtocolError, OSError)):
                answer(Wire(one), SERVER, SOON_S)


def garbage(chance: random.Random) -> bytes:
    """Noise, or something that begins like a greeting."""
    noise = chance.randbytes(chance.randint(0, 300))
    if chance.random() < 0.4:
        return noise
    texts: list[Any] = [
        [],
        {},
        {"protocol": 1},
        {"protocol": 1, "job": "job", "attempt": 3, "name": ["b"], "nonce": {}},
        {"protocol": 1, "job": "job", "attempt": 3, "name": "b", "nonce": "0"},
        {"protocol": 1, "job": "job", "attempt": True, "name": None},
        "[" * 500,
    ]
    text = json.dumps(chance.choice(texts)).encode()
    if chance.random() < 0.3:
        text = text[: chance.randint(0, len(text))]
    kind = chance.choice([0, 1, 1, 1, 2, 3, 255])
    second = HEADER.pack(1, 4) + b"null" if chance.random() < 0.5 else b""
    return HEADER.pack(kind, len(text)) + text + second + noise


@pytest.mark.parametrize("value", [None, "7", 7.0, True, [7]])
def test_only_a_number_is_a_number(value: object) -> None:
    assert number({"step": 7}, "step") == 7
    with pytest.raises(ProtocolError):
        number({"step": value}, "step")


def test_a_secret_is_not_in_what_is_printed_of_its_holder() -> None:
    secret = b"\x17" * 32
    assert "\\x17" not in repr(PeerCredentials("job", 3, "a", secret))
    assert secret.hex() not in repr(PeerCredentials("job", 3, "a", secret))


def say(wire: Wire, message: dict[str, object]) -> None:
    wire.send(FrameKind.HELLO, json.dumps(message).encode(), b"", SOON_S)


def hear(wire: Wire) -> dict[str, Any]:
    room = bytearray(1024)
    size, _ = wire.receive(FrameKind.HELLO, memoryview(room), 0, SOON_S)
    message: dict[str, Any] = json.loads(room[:size])
    return message
