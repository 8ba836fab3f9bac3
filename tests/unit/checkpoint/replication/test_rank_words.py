from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import set_word, write_page

from holdfast.contract.page import ORDER_SIZE, Order, OrderKind, Word, order_offset, parse_order
from holdfast_sidecar.checkpoint.replication.fetch import TransferCounts
from holdfast_sidecar.checkpoint.replication.server import Hosting
from holdfast_sidecar.checkpoint.replication.transfer import NO_MORE, Existing, RankWords


@pytest.fixture
def page_path(tmp_path: Path) -> Path:
    write_page(tmp_path, attempt=1, local_rank=0, rank=4)
    return write_page(tmp_path, attempt=2, local_rank=0, rank=5, epoch=9)


@pytest.fixture
def words(page_path: Path) -> Iterator[RankWords]:
    made = RankWords(page_path.parent, 2)
    yield made
    made.close()


def told(path: Path) -> tuple[int, Order | None]:
    """How often something was said, and what."""
    start = order_offset(OrderKind.CONFIRMED)
    return parse_order(path.read_bytes()[start : start + ORDER_SIZE])


def test_what_exists_is_read_from_the_page_of_this_attempt(
    words: RankWords, page_path: Path
) -> None:
    assert words.existing(5).newest == -1
    set_word(page_path, Word.SNAPSHOT_EXISTING, 8)
    assert words.existing(5).newest == 7
    assert words.existing(5).settled == -1
    set_word(page_path, Word.SNAPSHOT_SETTLED, 10)
    assert words.existing(5) == Existing(newest=7, settled=9)
    assert words.existing(4) == Existing()


def test_a_page_that_comes_later_is_found(words: RankWords, page_path: Path) -> None:
    assert not words.tell(6, 1, is_safe=True)
    write_page(page_path.parent, attempt=2, local_rank=1, rank=6)
    assert words.tell(6, 1, is_safe=True)


def test_a_page_that_took_anothers_place_is_spoken_to(words: RankWords, page_path: Path) -> None:
    """A script's wrapper claims the page, too, and is gone before the rank begins."""
    assert words.tell(5, 1, is_safe=True)
    page_path.rename(page_path.with_name("wrapper"))  # so that its inode is not used again
    write_page(page_path.parent, attempt=2, local_rank=0, rank=5, epoch=9)
    set_word(page_path, Word.SNAPSHOT_EXISTING, 3)
    assert words.existing(5).newest == 2
    assert words.tell(5, 2, is_safe=True)
    order = told(page_path)[1]
    assert order is not None
    assert order.step == 2


def test_only_what_is_new_is_said(words: RankWords, page_path: Path) -> None:
    assert words.tell(5, 7, is_safe=True)
    assert not words.tell(5, 7, is_safe=True)
    assert not words.tell(5, 6, is_safe=True)
    assert words.tell(5, NO_MORE, is_safe=False)
    assert not words.tell(5, NO_MORE, is_safe=False)
    count, order = told(page_path)
    assert (count, order) == (
        2,
        Order(OrderKind.CONFIRMED, 2, 9, NO_MORE, 0, f"step-{NO_MORE}"),
    )
    assert words.tell(5, 8, is_safe=True), "confirmations come again"
    order = told(page_path)[1]
    assert order is not None
    assert (order.step, order.is_withdrawn) == (8, False)


def test_a_rank_that_was_let_go_is_not_made_to_wait_by_a_late_confirmation(
    page_path: Path,
) -> None:
    hosting = Hosting(page_path.parent, "127.0.0.1:0", TransferCounts())
    hosting.speak_to(2)
    hosting._confirm(2, 5, 6)
    hosting.release(5)
    hosting._confirm(2, 5, 7)
    order = told(page_path)[1]
    assert order is not None
    assert order.is_withdrawn
    assert hosting.safe() == {5: 7}
    hosting.let_wait(5)
    order = told(page_path)[1]
    assert order is not None
    assert (order.step, order.is_withdrawn) == (7, False)
    hosting._confirm(1, 5, 9)
    assert hosting.safe() == {5: 7}, "of another attempt"
    hosting.close()
