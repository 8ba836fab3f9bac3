"""The packet that goes to another sidecar and comes back: signed with the attempt's key.

Whoever does not know the key gets no answer, and an answer is as long as its question, so that
nothing is to be had by asking in somebody else's name.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from functools import lru_cache

from holdfast_sidecar.records.reports import NOTHING_KNOWN, Life

ASK, ANSWER, RELAY = 1, 2, 3
"""RELAY asks whoever gets it to ask `to`, and to hand on what that answers."""
NONCE_BYTES = 16

_MAGIC = b"HFe2"
_BODY = struct.Struct(">4sBBHq8s16sQq")
_MAC_BYTES = 16
SIZE = _BODY.size + _MAC_BYTES
_MOST_RANKS = 2**16 - 1


@dataclass(frozen=True)
class Packet:
    """`to` is the node that is asked, in both directions; `held_ns` how long it held an answer."""

    kind: int
    attempt: int
    to: str
    nonce: bytes
    held_ns: int = 0
    life: Life = NOTHING_KNOWN
    """Of the node that answers."""


def pack(packet: Packet, secret: bytes) -> bytes:
    """The packet with its signature."""
    life = packet.life
    body = _BODY.pack(
        _MAGIC,
        packet.kind,
        life.has_launcher,
        min(life.ranks, _MOST_RANKS),
        packet.attempt,
        digest(packet.to),
        packet.nonce,
        packet.held_ns,
        life.step,
    )
    return body + _sign(body, secret)


def parse(content: bytes, to: str, attempt: int, secret: bytes) -> Packet | None:
    """The packet, if it is one of this attempt about this node, signed with its key; else None."""
    if len(content) != SIZE:
        return None
    body, signature = content[: _BODY.size], content[_BODY.size :]
    magic, kind, has_launcher, ranks, number, about, nonce, held_ns, step = _BODY.unpack(body)
    if (magic, number, about) != (_MAGIC, attempt, digest(to)):
        return None
    if not hmac.compare_digest(signature, _sign(body, secret)):
        return None
    return Packet(kind, number, to, nonce, held_ns, Life(bool(has_launcher), ranks, step))


def read_nonce(content: bytes) -> bytes:
    """By which an answer is matched with its question, before it is believed; empty: no packet."""
    return _BODY.unpack(content[: _BODY.size])[6] if len(content) == SIZE else b""


def read_about(content: bytes) -> bytes:
    """Digest of the node that it is about, before it is believed; empty: no packet."""
    return _BODY.unpack(content[: _BODY.size])[5] if len(content) == SIZE else b""


def _sign(body: bytes, secret: bytes) -> bytes:
    return hmac.digest(_own_key(secret), body, "sha256")[:_MAC_BYTES]


@lru_cache(maxsize=2)
def _own_key(secret: bytes) -> bytes:
    """A key of its own: no signature of another protocol fits here, nor the other way round."""
    return hmac.digest(secret, b"holdfast echo", "sha256")


def digest(node: str) -> bytes:
    """By which a packet names a node."""
    return hashlib.sha256(node.encode()).digest()[:8]
