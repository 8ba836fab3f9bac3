"""Two sidecars prove to each other that they know the attempt's key, without showing it.

Each sends a fresh nonce and its name; each proves itself by an HMAC over both. The serving side
proves first: a stranger who dials in learns nothing that helps, the key having 256 bits.
"""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.peers.channel import Channel
from holdfast_sidecar.peers.framing import LIMITS, Kind, Refused, Wire

PROTOCOL = 1

HANDSHAKE_S = 5.0
"""For each of its frames: a round trip and two hashes, on a machine that is busy."""

_SERVER = b"holdfast peer server"
_CLIENT = b"holdfast peer client"


@dataclass(frozen=True)
class Credentials:
    """Who this is, in which attempt of which job, and what proves it."""

    job: str
    attempt: int
    name: str
    secret: bytes

    def __repr__(self) -> str:
        """Without the secret: this may end up in a log."""
        return f"Credentials({self.job!r}, {self.attempt}, {self.name!r})"


def call(wire: Wire, own: Credentials, expected: str, within_s: float = HANDSHAKE_S) -> Channel:
    """The calling side; `expected` is the node that must answer. Raises Refused or OSError."""
    mine = _hello(own)
    _send(wire, mine, within_s)
    theirs = _receive(wire, within_s)
    if theirs.get("name") != expected:
        raise Refused(f"{theirs.get('name')!r} answers where {expected!r} should")
    transcript = _transcript(mine, theirs)
    _check(theirs, _proof(own.secret, _SERVER, transcript))
    _send(wire, {"proof": _proof(own.secret, _CLIENT, transcript).hex()}, within_s)
    return _channel(wire, own.secret, transcript, is_server=False, other=expected)


def answer(wire: Wire, own: Credentials, within_s: float = HANDSHAKE_S) -> Channel:
    """The serving side. Raises Refused or OSError."""
    theirs = _receive(wire, within_s)
    for name, value in (("protocol", PROTOCOL), ("job", own.job), ("attempt", own.attempt)):
        if theirs.get(name) != value:
            raise Refused(f"{name} {theirs.get(name)!r} where it is {value!r}")
    mine = _hello(own)
    transcript = _transcript(theirs, mine)
    proof = _proof(own.secret, _SERVER, transcript).hex()
    _send(wire, {**mine, "proof": proof}, within_s)
    _check(_receive(wire, within_s), _proof(own.secret, _CLIENT, transcript))
    return _channel(wire, own.secret, transcript, is_server=True, other=str(theirs.get("name")))


def _hello(own: Credentials) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "job": own.job,
        "attempt": own.attempt,
        "name": own.name,
        "nonce": secrets.token_hex(32),
    }


def _transcript(client: dict[str, Any], server: dict[str, Any]) -> bytes:
    """What both have seen; the serving side's proof is about it, so not part of it."""
    said = [client, {name: value for name, value in server.items() if name != "proof"}]
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def _proof(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    """Roles have proofs of their own, so that none can be sent back to who made it."""
    return hmac.digest(secret, role + b"\0" + transcript, "sha256")


def _check(message: dict[str, Any], proof: bytes) -> None:
    if not hmac.compare_digest(str(message.get("proof", "")).encode(), proof.hex().encode()):
        raise Refused("it does not know this attempt's key")


def _channel(
    wire: Wire, secret: bytes, transcript: bytes, *, is_server: bool, other: str
) -> Channel:
    """Each direction has a key of its own, made from both nonces: no recording fits again."""
    from_server = hmac.digest(secret, b"from server\0" + transcript, "sha256")
    from_client = hmac.digest(secret, b"from client\0" + transcript, "sha256")
    keys = (from_server, from_client) if is_server else (from_client, from_server)
    return Channel(wire, other, *keys)


def _send(wire: Wire, message: dict[str, Any], within_s: float) -> None:
    wire.send(Kind.HELLO, json.dumps(message).encode(), b"", within_s)


def _receive(wire: Wire, within_s: float) -> dict[str, Any]:
    room = bytearray(LIMITS[Kind.HELLO])
    size, _ = wire.receive(Kind.HELLO, memoryview(room), 0, within_s)
    try:
        message = json.loads(room[:size])
    except (ValueError, RecursionError):
        raise Refused("a greeting that can't be read") from None
    if not isinstance(message, dict):
        raise Refused("a greeting that is none")
    return message
