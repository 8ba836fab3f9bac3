from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast.page import (  # noqa: E402
    PAGE_SIZE,
    WORD_COUNT,
    WORDS_OFFSET,
    Flag,
    Identity,
    Word,
    pack_identity,
)
from holdfast_sidecar.launcher.backing import LOOK_EVERY_S, Backing, modules_to_warm  # noqa: E402
from holdfast_sidecar.launcher.standby import Standby  # noqa: E402


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


def test_interpreters_are_started_once_after_every_rank_has_stepped(tmp_path: Path) -> None:
    spy, pages = Spy(), [tmp_path / "0", tmp_path / "1"]
    backing = Backing(spy, pages)
    backing.look(0.0)
    write_page(pages[0], PUBLISHED=3)
    write_page(pages[1])
    backing.look(1.0)
    assert spy.asked == []
    write_page(pages[1], OPTIMIZER_CALLS=1, FLAGS=Flag.DYNAMO_IMPORTED)
    backing.look(1.0 + LOOK_EVERY_S / 2)
    assert spy.asked == [], "pages are not looked at that often"
    for now in (2.0, 3.0, 4.0):
        backing.look(now)
    assert spy.asked == [("torch", "torch._dynamo")]


def test_what_is_imported_is_what_the_ranks_had_imported() -> None:
    plain, dynamo = words(), words(FLAGS=Flag.DYNAMO_IMPORTED)
    assert modules_to_warm([plain, plain]) == ("torch",)
    assert modules_to_warm([plain, dynamo]) == ("torch", "torch._dynamo")


def test_one_rank_that_sets_up_torchs_libraries_itself_means_cold_starts() -> None:
    assert modules_to_warm([words(), words(FLAGS=Flag.NEEDS_COLD_START)]) == ()
