from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from holdfast_sidecar.actions.stack_answers import Asked, await_stacks
from holdfast_sidecar.pages import RankPage


def asked(file: Path, before: str, since: str) -> Asked:
    file.write_text(before + since)
    return Asked(Mock(spec=RankPage), file, len(before))


def test_what_was_written_since_the_question_is_the_answer(tmp_path: Path) -> None:
    one = asked(tmp_path / "stack-local-0.txt", "asked before\n", "Current thread\n")
    assert await_stacks([one], until_s=float("inf")) == [one]
    assert one.answer() == "Current thread\n"


def test_who_answered_while_other_things_were_done_has_answered(tmp_path: Path) -> None:
    quick = asked(tmp_path / "stack-local-0.txt", "", "Current thread\n")
    silent = asked(tmp_path / "stack-local-1.txt", "asked before\n", "")
    assert await_stacks([quick, silent], until_s=float("-inf")) == [quick]
