from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast_sidecar.incidents.rank_facts import RankFacts, RankFactsMemory, read_rank_facts
from holdfast_sidecar.ranks.page import Pages

UP_AND_WAITING = "import sys; print('up', file=sys.stderr, flush=True); input()"
"""In the middle of its exec a process has no command line; a rank that has a page is past that."""


def test_command_variables_and_the_files_of_its_output_are_read(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    log.write_text("of the attempt before\n")
    with log.open("a") as file:
        child = subprocess.Popen(
            [sys.executable, "-c", UP_AND_WAITING, "--api-key", "s3cr3t-Va1ue"],
            env={"NCCL_DEBUG": "INFO", "HF_TOKEN": "s3cr3t-t0ken", "EDITOR": "vi"},
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.PIPE,
        )
    assert child.stderr is not None
    try:
        assert child.stderr.readline() == b"up\n"
        facts = read_rank_facts(Path(f"/proc/{child.pid}"))
    finally:
        child.communicate(b"\n")
    assert facts.command[-2:] == ("--api-key", "s3cr3t-Va1ue")
    assert facts.secrets == {"s3cr3t-t0ken"}
    assert facts.told_variables == {"NCCL_DEBUG": "INFO"}
    assert list(facts.outputs) == ["stdout"]
    assert facts.outputs["stdout"].path == log
    assert facts.outputs["stdout"].begins == len("of the attempt before\n")
    assert "s3cr3t" not in repr(dataclasses.replace(facts, command=()))


def test_a_process_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    assert read_rank_facts(tmp_path) == RankFacts()


def test_ranks_are_read_once_and_old_attempts_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "unused")
    memory = RankFactsMemory()
    for attempt in range(4):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        write_page(directory, attempt=attempt, rank=5)
        pages = Pages(directory)
        pages.refresh()
        memory.follow(pages.held())
        again = memory.of_attempt(attempt)[5]
        memory.follow(pages.held())
        assert memory.of_attempt(attempt)[5] is again
        pages.close()
    assert again.command[0].endswith(os.path.basename(sys.executable)) or again.command
    assert [bool(memory.of_attempt(attempt)) for attempt in range(4)] == [False, False, True, True]
