from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from holdfast.contract.page import STACKS_SIGNAL
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.ranks.stacks import PendingDump, ask_for_stacks, await_stacks

PROC = Path("/proc")

HAS_OUR_HANDLER = f"""
import faulthandler, os, sys
stacks = open("stack-local-0.txt", "a")
faulthandler.register({int(STACKS_SIGNAL)}, file=stacks, chain=False)
exec(sys.argv[1])
print("ready", flush=True)
input()
"""


@contextmanager
def rank(folder: Path, does: str) -> Iterator[RankPage]:
    """A process with our handler that does something more."""
    command = [sys.executable, "-c", HAS_OUR_HANDLER, does]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        pidfd = os.pidfd_open(process.pid)
        identity = Mock(pid=process.pid, rank=0, local_rank=0)
        yield Mock(spec=RankPage, identity=identity, pidfd=pidfd)
        os.close(pidfd)
        assert process.poll() is None
        process.communicate(b"\n")


def asked(file: Path, before: str, since: str) -> PendingDump:
    file.write_text(before + since)
    return PendingDump(Mock(spec=RankPage), file, len(before))


def test_what_was_written_since_the_question_is_the_answer(tmp_path: Path) -> None:
    one = asked(tmp_path / "stack-local-0.txt", "asked before\n", "Current thread\n")
    assert await_stacks([one], until_s=float("inf")) == [one]
    assert one.answer() == "Current thread\n"


def test_who_answered_while_other_things_were_done_has_answered(tmp_path: Path) -> None:
    quick = asked(tmp_path / "stack-local-0.txt", "", "Current thread\n")
    silent = asked(tmp_path / "stack-local-1.txt", "asked before\n", "")
    assert await_stacks([quick, silent], until_s=float("-inf")) == [quick]


def test_a_rank_that_has_our_handler_and_its_file_answers(tmp_path: Path) -> None:
    with rank(tmp_path, "") as held:
        (one,) = ask_for_stacks([held], tmp_path, PROC)
        assert await_stacks([one], until_s=float("inf")) == [one]
        assert "most recent call first" in one.answer()


@pytest.mark.parametrize("takes_its_place", ["", "os.open('mine', os.O_RDWR | os.O_CREAT)"])
def test_a_rank_that_closed_the_file_is_not_asked(tmp_path: Path, takes_its_place: str) -> None:
    """The handler would write into whatever the script has under that number."""
    with rank(tmp_path, f"os.close(stacks.fileno()); {takes_its_place}") as held:
        assert ask_for_stacks([held], tmp_path, PROC) == []
    assert not (tmp_path / "mine").exists() or (tmp_path / "mine").read_bytes() == b""
