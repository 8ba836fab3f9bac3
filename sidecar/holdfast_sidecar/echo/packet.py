"""The packet that goes to another sidecar and comes back: signed with the attempt's key.

Whoever does not know the key gets no answer, and an answer is as long as its question, so that
nothing is to be had by asking in somebody else's name.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

ASK, ANSWER = 1, 2
NONCE_BYTES = 16

_MAGIC = b"HFe1"
_BODY = struct.Struct(">4sB3xq8s16sQ")
_MAC_BYTES = 16
SIZE = _BODY.size + _MAC_BYTES


@dataclass(frozen=True)
class Packet:
    """`to` is the node that is asked, in both directions; `held_ns` how long it held an answer."""

    kind: int
    attempt: int
    to: str
    nonce: bytes
    held_ns: int = 0


def pack(packet: Packet, secret: bytes) -> bytes:
    """The packet with its signature."""
    body = _BODY.pack(
        _MAGIC, packet.kind, packet.attempt, _digest(packet.to), packet.nonce, packet.held_ns
    )
    return body + _sign(body, secret)


def parse(content: bytes, to: str, attempt: int, secret: bytes) -> Packet | None:
    """The packet, if it is one of this attempt about this node, signed with its key; else None."""
    if len(content) != SIZE:
        return None
    body, signature = content[: _BODY.size], content[_BODY.size :]
    magic, kind, number, digest, nonce, held_ns = _BODY.unpack(body)
    if (magic, number, digest) != (_MAGIC, attempt, _digest(to)):
        return None
    if not hmac.compare_digest(signature, _sign(body, secret)):
        return None
    return Packet(kind, number, to, nonce, held_ns)


def read_nonce(content: bytes) -> bytes:
    """By which an answer is matched with its question, before it is believed; empty: no packet."""
    return _BODY.unpack(content[: _BODY.size])[4] if len(content) == SIZE else b""


def _sign(body: bytes, secret: bytes) -> bytes:
    """A key of its own: no signature of another protocol fits here, nor the other way round."""
    key = hmac.digest(secret, b"holdfast echo", "sha256")
    return hmac.digest(key, body, "sha256")[:_MAC_BYTES]


def _digest(node: str) -> bytes:
    return hashlib.sha256(node.encode()).digest()[:8]
