"""Whether anybody reads what ranks print: only pipes of this process's own have lost a reader."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from holdfast_sidecar.launcher.rank_process import SYS_STREAM, LocalRanks  # noqa: E402

HERE = SimpleNamespace(
    stdouts={0: SYS_STREAM, 1: SYS_STREAM}, stderrs={0: "/log/0/stderr", 1: SYS_STREAM}
)


@contextmanager
def printing_to(descriptor: int, target: int) -> Iterator[None]:
    kept = os.dup(descriptor)
    os.dup2(target, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


@pytest.mark.parametrize(("descriptor", "ranks"), [(1, {0, 1}), (2, {1})])
@pytest.mark.parametrize("is_read", [True, False])
def test_ranks_that_print_into_a_pipe_know_whether_it_is_read(
    descriptor: int, ranks: set[int], is_read: bool
) -> None:
    reader, writer = os.pipe()
    with ExitStack() as closing:
        closing.callback(os.close, writer)
        if is_read:
            closing.callback(os.close, reader)
        else:
            os.close(reader)
        with printing_to(descriptor, writer):
            unread = LocalRanks(HERE).read_unread()
    assert unread == (set() if is_read else ranks)


def test_a_terminal_that_hung_up_breaks_no_pipe() -> None:
    mine, theirs = pty.openpty()
    os.close(mine)
    with printing_to(1, theirs):
        unread = LocalRanks(HERE).read_unread()
    os.close(theirs)
    assert unread == set()


def test_whose_output_goes_into_a_file_loses_no_reader() -> None:
    files = {0: "/log/0/stdout", 1: "/log/1/stdout"}
    reader, writer = os.pipe()
    os.close(reader)
    with printing_to(1, writer):
        unread = LocalRanks(SimpleNamespace(stdouts=files, stderrs=files)).read_unread()
    os.close(writer)
    assert unread == set()
