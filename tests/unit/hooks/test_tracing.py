from __future__ import annotations

import os
from typing import Any

from holdfast.rank import ptrace


class Library:
    """A C library that keeps what it was asked, and answers as the kernel would."""

    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def prctl(self, option: int, pid: Any, *rest: int) -> int:
        self.asked.append((option, pid.value, *rest))
        return self.answer


def test_a_rank_lets_its_launcher_and_nobody_else_see_where_it_waits() -> None:
    library = Library(0)
    assert ptrace.let_see(library=library)
    assert library.asked == [(0x59616D61, os.getppid(), 0, 0, 0)]


def test_a_kernel_without_yama_needs_no_leave() -> None:
    assert not ptrace.let_see(library=Library(-1))


def test_whoever_took_over_an_orphan_is_let_see_nothing() -> None:
    library = Library(0)
    assert not ptrace.let_see(1, library)
    assert library.asked == []


def test_the_real_call_does_no_harm() -> None:
    assert ptrace.let_see() in (True, False)
