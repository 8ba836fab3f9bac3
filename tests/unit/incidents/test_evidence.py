from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import NOBODY, publish, write_page
from tests.unit.ranks.scene import record

from holdfast.contract import page
from holdfast.contract.page import PAGE_SIZE, STACKS_SIGNAL
from holdfast_sidecar.config.redaction import REDACTED, Redaction, secrets_among
from holdfast_sidecar.incidents.collect import EvidenceRequest, clean_page, keep_evidence
from holdfast_sidecar.incidents.rank_facts import RankFacts, is_kept
from holdfast_sidecar.ranks.page import Pages, RankPage
from holdfast_sidecar.ranks.stacks import can_answer

STATUS = "Name:\tpython\nState:\t{state}\nSigBlk:\t{blocked}\nSigCgt:\t{caught}\n"
OURS = f"{1 << (STACKS_SIGNAL - 1):016x}"
NONE = "0000000000000000"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    path = write_page(tmp_path, pid=NOBODY, start_ticks=1)
    publish(path, 0, record(step=41, forward=5))
    made = Pages(tmp_path)
    made.refresh()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("state", "blocked", "caught", "answers"),
    [
        ("S (sleeping)", NONE, OURS, True),
        ("D (disk sleep)", NONE, OURS, True),
        ("T (stopped)", NONE, OURS, False),
        ("Z (zombie)", NONE, OURS, False),
        ("S (sleeping)", OURS, OURS, False),
        ("S (sleeping)", NONE, NONE, False),
    ],
)
def test_only_who_catches_the_signal_is_asked(
    state: str, blocked: str, caught: str, answers: bool
) -> None:
    assert can_answer(STATUS.format(state=state, blocked=blocked, caught=caught)) is answers


def test_a_process_that_is_gone_is_not_asked() -> None:
    assert not can_answer("")


def test_what_a_dead_rank_left_is_kept(tmp_path: Path, pages: Pages) -> None:
    destination = tmp_path / "incidents" / "i1"
    request = EvidenceRequest("i1", tuple(pages.held()), tmp_path / "stacks", destination)
    assert not is_kept(destination)
    assert keep_evidence(request)
    assert is_kept(destination)
    facts = json.loads((destination / "rank-0.json").read_text())
    assert facts["records"][0]["step"] == 41
    assert (destination / "rank-0.page").stat().st_size == PAGE_SIZE
    assert not list(destination.glob("*.new"))


def test_a_loss_that_is_no_number_leaves_the_evidence_readable(tmp_path: Path) -> None:
    path = write_page(tmp_path, pid=NOBODY, start_ticks=1)
    for index, loss in enumerate((math.nan, -math.inf, 0.5)):
        publish(path, index, dataclasses.replace(record(step=index, forward=5), loss=loss))
    pages = Pages(tmp_path)
    pages.refresh()
    keep_evidence(EvidenceRequest("i1", tuple(pages.held()), tmp_path / "stacks", tmp_path / "i1"))
    pages.close()
    text = (tmp_path / "i1" / "rank-0.json").read_text()
    facts = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [told["loss"] for told in facts["records"]] == ["nan", "-inf", 0.5]


def test_evidence_is_kept_once(tmp_path: Path, pages: Pages) -> None:
    request = EvidenceRequest("i1", tuple(pages.held()), tmp_path / "stacks", tmp_path / "i1")
    assert keep_evidence(request)
    assert not keep_evidence(request)


def test_secrets_of_command_environment_and_last_words_are_not_written_down(
    tmp_path: Path,
) -> None:
    secret = "s3cr3t-Va1ue"
    path = write_page(tmp_path, pid=NOBODY, start_ticks=1)
    with path.open("r+b") as file:
        file.seek(page.LAST_WORDS_OFFSET)
        words = {"type": "OSError", "message": f"no redis://:{secret}@h", "traceback": secret}
        file.write(page.pack_last_words(words))
    variables = {"HF_TOKEN": secret, "NCCL_DEBUG": "INFO", "TORCH_KEY": secret, "EDITOR": "vi"}
    facts = RankFacts(("train.py", "--api-key", secret, "--lr=1"), variables)
    pages = Pages(tmp_path)
    pages.refresh()
    keep_evidence(
        EvidenceRequest(
            "i1",
            tuple(pages.held()),
            tmp_path / "stacks",
            tmp_path / "i1",
            facts={0: facts},
            redaction=Redaction(secrets_among(variables)),
        )
    )
    pages.close()
    assert not [
        file.name for file in (tmp_path / "i1").iterdir() if secret.encode() in file.read_bytes()
    ]
    told = json.loads((tmp_path / "i1" / "rank-0.json").read_text())
    assert told["command"] == ["train.py", "--api-key", REDACTED, "--lr=1"]
    assert told["environment"] == {"NCCL_DEBUG": "INFO", "TORCH_KEY": REDACTED}
    assert told["other_variables"] == ["EDITOR", "HF_TOKEN"]
    assert told["last_words"]["message"] == f"no redis://{REDACTED}@h"
    kept = page.parse_last_words((tmp_path / "i1" / "rank-0.page").read_bytes())
    assert kept == told["last_words"]


def test_a_page_without_last_words_stays_as_it_is(tmp_path: Path) -> None:
    content = write_page(tmp_path).read_bytes()
    assert clean_page(content, Redaction(frozenset({"job"}))) == content


def test_what_the_flight_recorder_says_is_kept_and_who_does_not_answer_is_left_out(
    tmp_path: Path,
) -> None:
    for local_rank in (0, 1, 2):
        path = write_page(tmp_path, local_rank=local_rank)
        if local_rank == 1:
            path.with_suffix(page.SOCKET_SUFFIX).touch()
    with path.open("r+b") as last:
        last.seek(page.WORDS_OFFSET + 8 * page.Word.FLAGS)
        last.write(int(page.Flag.NO_ROOM_FOR_RECORDER).to_bytes(8, "little"))
    pages = Pages(tmp_path)
    pages.refresh()

    def ask(held: RankPage, deadline_s: float) -> bytes:
        if held.identity.rank == 1:
            raise OSError(111, "Connection refused")
        if held.identity.rank == 2:
            raise ValueError("planted")
        return b'{"entries": ["hush-hush"]}'

    redaction = Redaction(frozenset({"hush-hush"}))
    asked = EvidenceRequest(
        "i1",
        tuple(pages.held()),
        tmp_path / "stacks",
        tmp_path / "i1",
        redaction=redaction,
        ask_ring=ask,
        spies=False,
    )
    keep_evidence(asked)
    pages.close()
    assert sorted(file.name for file in (tmp_path / "i1").glob("*-collectives.json")) == [
        "rank-0-collectives.json"
    ]
    ring = json.loads((tmp_path / "i1" / "rank-0-collectives.json").read_text())
    assert ring == {"entries": [REDACTED]}
    kept = json.loads((tmp_path / "i1" / "kept.json").read_text())
    assert kept["rings"] == [0]
    assert kept["rings_missing"] == {
        "1": "did not answer",
        "2": "not opened: no room for its threads (pids.max, ulimit -u or -v)",
    }


def test_of_a_living_process_the_kernel_is_asked_where_it_waits(tmp_path: Path) -> None:
    write_page(tmp_path)
    pages = Pages(tmp_path)
    pages.refresh()
    keep_evidence(
        EvidenceRequest("i1", tuple(pages.held()), tmp_path / "x", tmp_path / "i1", spies=False)
    )
    pages.close()
    told = json.loads((tmp_path / "i1" / "rank-0.json").read_text())["process"]
    assert told["status"].startswith("Name:")
    assert str(os.getpid()) in told["threads"]
    assert "0" in told["files"]


def test_a_rank_stands_where_its_stopped_loader_worker_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spying = tmp_path / "py-spy"
    dump = 'Thread 1 (idle): "MainThread"\n    load (/job/data.py:9)\n'
    spying.write_text(f"#!/bin/sh\ncat <<'.'\nProcess 1: x\n{dump}.\n")
    spying.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    child = subprocess.Popen(["sleep", "60"])
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    write_page(tmp_path)
    pages = Pages(tmp_path)
    pages.refresh()
    try:
        culprits = frozenset({0})
        keep_evidence(
            EvidenceRequest("i1", tuple(pages.held()), tmp_path, tmp_path / "i1", culprits=culprits)
        )
    finally:
        child.kill()
        child.wait()
        pages.close()
    kept = json.loads((tmp_path / "i1" / "kept.json").read_text())
    assert kept["spied"] == [0]
    assert kept["places"]["0"] == f"in load (data.py:9), its child {child.pid} in load (data.py:9)"
    assert (tmp_path / "i1" / f"child-{child.pid}-stacks.txt").exists()
