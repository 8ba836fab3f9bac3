"""The page's layout: what is packed can be read, and what is torn is not taken."""

from __future__ import annotations

import pytest

from holdfast.contract import page
from holdfast.contract.page import Identity, Order, OrderKind, Record, Reply, ReplyState

IDENTITY = Identity(1, 2, 3, 4, 5, 6, 7, 8, "node-a", "job-b")
RECORD = Record(
    *(1, 2, 82, 4, 5, 6, 7, 8, 9, 10, 0.5, 3, 2.5, 11, 12, 10, 14, 15),
    *((16, 17, 18, 19), (20, 21, 22, 23, 24, 25), 2, 27, 28.0, 29),
)


def place(zone: bytes, offset: int) -> bytes:
    return bytes(offset) + zone + bytes(page.PAGE_SIZE - offset - len(zone))


def tears(data: bytes) -> list[bytes]:
    """The same with one byte wrong, for every byte."""
    return [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]


def test_an_identity_survives_and_a_torn_one_is_none() -> None:
    zone = page.pack_identity(IDENTITY)
    assert len(zone) <= page.WORDS_OFFSET
    assert page.parse_identity_zone(place(zone, 0)) == IDENTITY
    assert {page.parse_identity_zone(place(torn, 0)) for torn in tears(zone)} == {None}
    assert page.parse_identity_zone(b"") is None


def test_a_record_survives_and_a_torn_one_is_none() -> None:
    data = page.pack_record(RECORD)
    assert len(data) == page.RECORD_SIZE
    assert page.parse_record(data) == RECORD
    assert {page.parse_record(torn) for torn in tears(data)} == {None}
    assert page.parse_record(bytes(page.RECORD_SIZE)) is None


@pytest.mark.parametrize("kind", list(OrderKind))
def test_a_reply_survives_in_the_slot_of_its_kind_and_a_torn_one_is_none(kind: OrderKind) -> None:
    reply = Reply(ReplyState.SAVED, 1, 2, 3, "id")
    zone = page.pack_reply(reply)
    start = page.reply_offset(kind)
    assert len(zone) <= page.REPLY_SIZE
    assert page.parse_reply(place(zone, start), kind) == reply
    assert {page.parse_reply(place(torn, start), kind) for torn in tears(zone)} == {None}
    assert page.parse_reply(bytes(page.PAGE_SIZE), kind) is None


@pytest.mark.parametrize("kind", list(OrderKind))
def test_an_order_survives_in_the_slot_of_its_kind_and_a_torn_one_is_none(kind: OrderKind) -> None:
    order = Order(kind, 1, 2, 3, 4, "id", every=5, slots=6)
    body, word = page.pack_order(order, 9)
    slot = word + body
    assert len(slot) <= page.ORDER_SIZE
    assert page.parse_order(slot.ljust(page.ORDER_SIZE, b"\0")) == (9, order)
    for torn in tears(slot)[12:16] + tears(slot)[16:]:
        sequence, parsed = page.parse_order(torn.ljust(page.ORDER_SIZE, b"\0"))
        assert sequence == 9
        assert parsed is None or torn[:12] + torn[16:] == slot[:12] + slot[16:]


@pytest.mark.parametrize("length", [0, 10, 1500, 5000, 100_000])
def test_last_words_of_any_length_fit_and_can_be_read(length: int) -> None:
    words = {"type": "ValueError", "message": "ü" * length, "traceback": "t" * length}
    zone = page.pack_last_words(words)
    assert len(zone) <= page.LAST_WORDS_SIZE
    parsed = page.parse_last_words(place(zone, page.LAST_WORDS_OFFSET))
    assert parsed is not None
    assert parsed["type"] == "ValueError"
    assert page.parse_last_words(bytes(page.PAGE_SIZE)) is None


def test_last_words_fit_in_any_script() -> None:
    words = dict.fromkeys(
        ("type", "message", "frame", "traceback", "thread"), "\N{GRINNING FACE}" * 300
    )
    parsed = page.parse_last_words(place(page.pack_last_words(words), page.LAST_WORDS_OFFSET))
    assert parsed is not None
    assert parsed.keys() == words.keys()


def test_a_number_keeps_its_bits() -> None:
    for value in (0.0, -1.5, 1e300, float("inf")):
        assert page.bits_float(page.float_bits(value)) == value


def test_the_zones_do_not_overlap_and_fill_the_page() -> None:
    assert page.WORDS_OFFSET + 8 * page.WORD_COUNT == page.ORDERS_OFFSET
    assert page.ORDERS_OFFSET + len(OrderKind) * page.ORDER_SIZE <= page.REPLIES_OFFSET
    assert page.REPLIES_OFFSET + len(OrderKind) * page.REPLY_SIZE <= page.DEATH_OFFSET
    assert page.DEATH_OFFSET + page.DEATH_SIZE <= page.LAST_WORDS_OFFSET
    assert page.LAST_WORDS_OFFSET + page.LAST_WORDS_SIZE <= page.RING_OFFSET
    assert page.RING_OFFSET + page.RING_CAPACITY * page.RECORD_SIZE == page.PAGE_SIZE


@pytest.mark.parametrize(
    ("flags", "alone"),
    [
        (page.Flag(0), False),
        (page.Flag.GROUP_INITIALISED, True),
        (page.Flag.GROUP_INITIALISED | page.Flag.LOOP_WRAPPED, True),
        (page.Flag.GROUP_INITIALISED | page.Flag.OTHER_BACKEND, False),
    ],
)
def test_the_page_says_whether_the_rank_used_gloo_alone(flags: page.Flag, alone: bool) -> None:
    words = [0] * page.WORD_COUNT
    words[page.Word.FLAGS] = int(flags)
    assert page.uses_gloo_alone(tuple(words)) is alone
