"""What is kept of ranks without hooks, and what is not written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.incidents.collect import keep_outside_evidence
from holdfast_sidecar.ranks.stacks import find_spy
from holdfast_sidecar.ranks.unhooked import OutsideLook, OutsideRank

SCRIPT = """
import sys
def wait_for_ever():
    print("up", flush=True)
    sys.stdin.read()
wait_for_ever()
"""

NOBODY = 2**22 + 1
"""No process has so high a number."""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    started = subprocess.Popen(
        [sys.executable, str(script), "--api-key", "sesame-open-4711"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "WANDB_API_KEY": "do-not-tell-0815", "NCCL_DEBUG": "INFO"},
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    yield started
    started.kill()
    started.communicate()


def test_kernel_views_start_and_stack_are_kept_without_secrets(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    kept = tmp_path / "incident"
    alive = OutsideLook(OutsideRank(3, 0, child.pid, 5), 1.0, state="S")
    gone = OutsideLook(OutsideRank(4, 1, 1, 5), 1.0, is_gone=True)
    places = keep_outside_evidence("x", kept, [alive, gone])
    written = {path.name: path.read_text() for path in kept.iterdir()}
    index = json.loads(written["kept.json"])
    assert (index["incident"], index["ranks"]) == ("x", [3])
    facts = json.loads(written["rank-3.json"])
    assert facts["command"][-2] == "--api-key"
    assert facts["environment"]["NCCL_DEBUG"] == "INFO"
    assert "State:" in facts["process"]["status"]
    for name, text in written.items():
        assert "sesame-open-4711" not in text, name
        assert "do-not-tell-0815" not in text, name
    if find_spy() and os.geteuid() == 0:
        assert places == {3: "in wait_for_ever (train.py:5)"}
        assert "wait_for_ever" in written["rank-3-stacks.txt"]


def test_what_lies_in_the_memory_of_a_hung_rank_is_not_waited_for(tmp_path: Path) -> None:
    process, kept = tmp_path / "proc" / str(NOBODY), tmp_path / "incident"
    process.mkdir(parents=True)
    (process / "status").write_text("State:\tD (disk sleep)\n")
    os.mkfifo(process / "environ")
    hung = OutsideLook(OutsideRank(3, 0, NOBODY, 5), 1.0, state="D")
    try:
        keep_outside_evidence("x", kept, [hung], proc=tmp_path / "proc", facts_s=0.01)
    finally:
        (process / "environ").write_bytes(b"")  # lets go who still waits
    assert json.loads((kept / "kept.json").read_text())["ranks"] == [3]
    facts = json.loads((kept / "rank-3.json").read_text())
    assert facts["command"] == []
    assert "disk sleep" in facts["process"]["status"]
