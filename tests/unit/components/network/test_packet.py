"""The packet between two sidecars: who may ask, and that nothing is gained by asking."""

from __future__ import annotations

import pytest

from holdfast_sidecar.components.network.round_trip import (
    ANSWER,
    ASK,
    SIZE,
    Packet,
    pack,
    parse,
    read_nonce,
)

SECRET = b"k" * 32
QUESTION = Packet(ASK, 3, "b", b"n" * 16)


def test_a_packet_says_what_was_put_in() -> None:
    answer = Packet(ANSWER, 3, "b", b"n" * 16, held_ns=1234)
    assert parse(pack(answer, SECRET), "b", 3, SECRET) == answer
    assert read_nonce(pack(answer, SECRET)) == b"n" * 16


def test_question_and_answer_are_equally_long() -> None:
    answer = Packet(ANSWER, 3, "b", b"n" * 16, held_ns=2**63)
    assert len(pack(QUESTION, SECRET)) == len(pack(answer, SECRET)) == SIZE


@pytest.mark.parametrize(
    ("to", "attempt", "secret"), [("c", 3, SECRET), ("b", 4, SECRET), ("b", 3, b"x" * 32)]
)
def test_a_packet_for_another_node_or_attempt_or_by_a_stranger_is_none(
    to: str, attempt: int, secret: bytes
) -> None:
    assert parse(pack(QUESTION, SECRET), to, attempt, secret) is None


def test_a_packet_that_was_changed_on_the_way_is_none() -> None:
    content = bytearray(pack(QUESTION, SECRET))
    for at in range(SIZE):
        content[at] ^= 1
        assert parse(bytes(content), "b", 3, SECRET) is None
        content[at] ^= 1


@pytest.mark.parametrize("content", [b"", b"x", bytes(SIZE), bytes(SIZE + 1), bytes(65000)])
def test_what_is_no_packet_is_none(content: bytes) -> None:
    assert parse(content, "b", 3, SECRET) is None
    assert len(read_nonce(content)) in (0, 16)
