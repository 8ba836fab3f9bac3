from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.ranks.stacks import SuspectProcess, spy

RUNNING = SuspectProcess(rank=0, pid=41, is_stopped=False, has_answered=False)
STOPPED = SuspectProcess(rank=1, pid=42, is_stopped=True, has_answered=False)
CULPRIT = SuspectProcess(rank=2, pid=43, is_stopped=False, has_answered=True)


def program(directory: Path, body: str) -> str:
    path = directory / "py-spy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_each_is_looked_at_as_it_can_be_and_command_lines_are_left_out(tmp_path: Path) -> None:
    spying = program(tmp_path, 'echo "Process 1: train --api-key s3cr3t"; echo "$@"')
    seen = spy(spying, [RUNNING, STOPPED, CULPRIT], tmp_path)
    assert seen == {
        0: "dump --full-filenames --pid 41\n",
        1: "dump --full-filenames --nonblocking --pid 42\n",
        2: "dump --full-filenames --native --pid 43\n",
    }
    assert list(tmp_path.iterdir()) == [Path(spying)]


def test_who_may_not_be_looked_at_is_left_out(tmp_path: Path) -> None:
    spying = program(
        tmp_path, '[ "$5" = 42 ] || { echo "Permission denied"; exit 1; }; echo; echo x'
    )
    assert spy(spying, [RUNNING, STOPPED], tmp_path) == {1: "x\n"}


def test_a_program_that_cant_be_started_costs_no_other_evidence(tmp_path: Path) -> None:
    foreign = tmp_path / "py-spy"
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    assert spy(str(foreign), [RUNNING, STOPPED], tmp_path) == {}
    assert list(tmp_path.iterdir()) == [foreign]


def test_nobody_is_looked_at_for_ever(tmp_path: Path) -> None:
    spying = program(tmp_path, "echo begun; echo more; exec sleep 60")
    assert spy(spying, [RUNNING], tmp_path, limit_s=0.2) == {}
    assert list(tmp_path.iterdir()) == [Path(spying)]
