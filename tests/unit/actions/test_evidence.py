from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.detectors.scene import record
from tests.unit.pretend_pages import NOBODY, publish, write_page

from holdfast.page import PAGE_SIZE, STACKS_SIGNAL
from holdfast_sidecar.actions.evidence import Request, can_answer, is_kept, keep_evidence
from holdfast_sidecar.pages import Pages

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
    request = Request("i1", tuple(pages.held()), tmp_path / "stacks", destination)
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
    keep_evidence(Request("i1", tuple(pages.held()), tmp_path / "stacks", tmp_path / "i1"))
    pages.close()
    text = (tmp_path / "i1" / "rank-0.json").read_text()
    facts = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [told["loss"] for told in facts["records"]] == ["nan", "-inf", 0.5]


def test_evidence_is_kept_once(tmp_path: Path, pages: Pages) -> None:
    request = Request("i1", tuple(pages.held()), tmp_path / "stacks", tmp_path / "i1")
    assert keep_evidence(request)
    assert not keep_evidence(request)
