from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.xids.stories import STORIES
from tests.unit.xids.telling import told

from holdfast_sidecar.xids.history import History
from holdfast_sidecar.xids.kept import as_json, read_boot, read_history, write_history


@pytest.fixture
def history() -> History:
    stories = {story.name: story for story in STORIES}
    return told(stories["mended, and there again"]).history


def test_what_was_written_is_read_again(tmp_path: Path, history: History) -> None:
    path = tmp_path / ".machine" / "xids.json"
    write_history(path, history)
    assert read_history(path) == history
    assert [each.name for each in path.parent.iterdir()] == ["xids.json"]


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_history(tmp_path / "xids.json") == History()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "3", '{"version": 99}', '{"version": 1}', "\x00\xff", '{"a": 1}'],
)
def test_a_torn_or_foreign_file_reads_as_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "xids.json"
    path.write_text(content)
    assert read_history(path) == History()


def test_a_file_cut_anywhere_reads_as_nothing(tmp_path: Path, history: History) -> None:
    path = tmp_path / "xids.json"
    content = json.dumps(as_json(history))
    for length in range(0, len(content), 97):
        path.write_text(content[:length])
        assert read_history(path) == History()


@pytest.mark.parametrize("broken", [None, 3, {}, {"pci": "x"}, {"number": "NaN"}])
def test_an_occurrence_that_makes_no_sense_is_left_out(
    tmp_path: Path, history: History, broken: Any
) -> None:
    value = as_json(history)
    value["occurrences"].insert(0, broken)
    path = tmp_path / "xids.json"
    path.write_text(json.dumps(value))
    assert read_history(path) == history


def test_the_kernel_says_which_boot_it_is(tmp_path: Path) -> None:
    assert len(read_boot()) == 36
    assert read_boot(tmp_path / "nowhere") == ""
