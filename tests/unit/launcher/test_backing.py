from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast.contract.page import (  # noqa: E402
    PAGE_SIZE,
    WORD_COUNT,
    WORDS_OFFSET,
    Flag,
    Identity,
    Word,
    pack_identity,
)
from holdfast_sidecar.components.host.cpu import parse_idle_s  # noqa: E402
from holdfast_sidecar.launcher.standby import (  # noqa: E402
    LOOK_EVERY_S,
    Backing,
    Cores,
    Standby,
    modules_to_warm,
    read_cores,
)


def words(**values: int) -> tuple[int, ...]:
    found = [0] * WORD_COUNT
    for name, value in values.items():
        found[Word[name]] = value
    return tuple(found)


def write_page(path: Path, **values: int) -> None:
    content = bytearray(PAGE_SIZE)
    identity = pack_identity(Identity(1, 2, 0, 0, 0, 0, 1, 0, "n", "j"))
    content[: len(identity)] = identity
    zone = b"".join(word.to_bytes(8, "little") for word in words(**values))
    content[WORDS_OFFSET : WORDS_OFFSET + len(zone)] = zone
    path.write_bytes(content)


class Spy(Standby):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ...]] = []

    def warm_up(self, modules: tuple[str, ...] = ("torch",)) -> None:
        self.asked.append(modules)


def idle(share: float, count: int = 2) -> Callable[[], Cores]:
    """So many cores, of which this share has nothing to run; a second passes between two calls."""
    seconds, numbers = itertools.count(), frozenset(range(count))
    return lambda: Cores(numbers, math.inf, share * count * next(seconds))


def both_stepped(folder: Path) -> list[Path]:
    pages = [folder / "0", folder / "1"]
    write_page(pages[0], PUBLISHED=3)
    write_page(pages[1], OPTIMIZER_CALLS=1, FLAGS=Flag.DYNAMO_IMPORTED)
    return pages


def test_interpreters_are_started_once_after_every_rank_has_stepped(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    spy, pages = Spy(), [tmp_path / "0", tmp_path / "1"]
    backing = Backing(spy, pages, told.append, idle(0.9))
    backing.look(0.0)
    write_page(pages[0], PUBLISHED=3)
    write_page(pages[1])
    backing.look(1.0)
    assert told == []
    both_stepped(tmp_path)
    backing.look(1.0 + LOOK_EVERY_S / 2)
    assert told == [], "pages are not looked at that often"
    for now in (2.0, 3.0, 4.0, 5.0, 6.0):
        backing.look(now)
    assert told == spy.asked == [("torch", "torch._dynamo")]


def start_of(folder: Path, cores: Callable[[], Cores]) -> float:
    """So many seconds after both ranks have stepped."""
    spy = Spy()
    backing = Backing(spy, both_stepped(folder), cores=cores)
    backing.look(0.0)
    for now in itertools.count(1):
        backing.look(float(now))
        if spy.asked:
            return now
        assert now < 1000
    raise AssertionError


def test_where_cores_are_idle_they_start_at_once(tmp_path: Path) -> None:
    assert start_of(tmp_path, idle(0.8)) == 1


def test_beside_ranks_that_use_half_of_each_core_they_do_not(tmp_path: Path) -> None:
    assert start_of(tmp_path, idle(0.6)) == 150


def test_beside_ranks_that_use_every_core_they_wait_until_it_is_a_small_share(
    tmp_path: Path,
) -> None:
    assert start_of(tmp_path, idle(0.2)) == 150
    assert start_of(tmp_path, idle(0.0, count=96)) == 150, "all wait for the slowest thread"
    assert start_of(tmp_path, idle(0.0, count=1)) == 300


def test_cores_that_are_never_idle_are_read_less_and_less_often(tmp_path: Path) -> None:
    read_at: list[float] = []
    now = 0.0

    def busy() -> Cores:
        read_at.append(now)
        return Cores(frozenset(range(2)), math.inf, 0.0)

    backing = Backing(Spy(), both_stepped(tmp_path), cores=busy)
    while now < 149:
        backing.look(now)
        now += LOOK_EVERY_S
    assert read_at[:4] == [0.0, 0.5, 1.0, 1.5]
    assert len(read_at) < 50
    assert read_at[-1] > 120


def test_under_a_quota_it_is_not_known_what_is_idle(tmp_path: Path) -> None:
    assert start_of(tmp_path, lambda: Cores(frozenset(range(8)), 1.5, None)) == 200


def test_what_cores_did_before_they_were_ours_says_nothing(tmp_path: Path) -> None:
    seconds = itertools.count(1)
    sizes = itertools.chain((1, 8), itertools.repeat(8))

    def growing() -> Cores:
        size = next(sizes)
        return Cores(frozenset(range(size)), math.inf, 1000.0 * size + 0.1 * next(seconds))

    assert start_of(tmp_path, growing) == 150


def test_it_is_read_what_this_process_may_use(tmp_path: Path) -> None:
    cores = read_cores()
    assert 0 < cores.count <= len(cores.numbers) == len(os.sched_getaffinity(0))
    assert cores.idle_s is None or cores.idle_s > 0
    stat = "cpu  9 9 9 900 90 0 0 0\ncpu0 1 1 1 400 50 0 0 0\ncpu1 1 1 1 500 40 0 0 0\n"
    assert parse_idle_s(stat, {1}) == 5.4
    assert parse_idle_s(stat, {0, 1, 7}) == 9.9
    assert parse_idle_s("", {0}) == 0.0
    assert parse_idle_s("\ncpu0 1 1\n", {0}) is parse_idle_s("cpu0 a b c d e", {0}) is None


def test_what_is_imported_is_what_the_ranks_had_imported() -> None:
    plain, dynamo = words(), words(FLAGS=Flag.DYNAMO_IMPORTED)
    assert modules_to_warm([plain, plain]) == ("torch",)
    assert modules_to_warm([plain, dynamo]) == ("torch", "torch._dynamo")


def test_one_rank_that_sets_up_torchs_libraries_itself_means_cold_starts() -> None:
    assert modules_to_warm([words(), words(FLAGS=Flag.NEEDS_COLD_START)]) == ()
