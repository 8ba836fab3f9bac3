"""What ranks say of where they stand, read beside their pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast_sidecar.performance import slowness
from holdfast_sidecar.performance.slowness import LayoutsProbe
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.steps import RankPlacement


def write(path: Path, told: object) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(told))
    draft.replace(path)


def test_a_rank_says_where_it_stands_once_it_knows(tmp_path: Path) -> None:
    first, second = (write_page(tmp_path, local_rank=n, rank=4 + n) for n in (0, 1))
    pages = Pages(tmp_path)
    pages.refresh()
    probe = LayoutsProbe(pages.held)
    assert probe.read(0.0) == {}
    write(first.with_suffix(".layout"), {"dims": ["dp"], "shape": [2], "coordinate": [0]})
    group = {"title": "default_pg", "ranks": [4, 5], "slot": 0, "digest": "ff"}
    write(first.with_suffix(".groups"), {"0": group})
    assert probe.read(1.0) == {4: RankPlacement("dp=0/2", ("default_pg/ff/2", "", "", ""))}
    write(second.with_suffix(".layout"), {"role": "evaluator"})
    assert probe.read(2.0)[5] == RankPlacement("role=evaluator")
    first.with_suffix(".layout").unlink()
    assert probe.read(3.0)[4].layout == ""
    pages.close()


def test_files_are_read_only_when_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def noting(path: Path, most_bytes: float) -> str:
        read.append(path)
        return path.read_text() if path.exists() else ""

    monkeypatch.setattr(slowness, "read_if_any", noting)
    page = write_page(tmp_path)
    write(page.with_suffix(".layout"), {"role": "trainer"})
    pages = Pages(tmp_path)
    pages.refresh()
    probe = LayoutsProbe(pages.held)
    for second in range(5):
        assert probe.read(float(second)) == {0: RankPlacement("role=trainer")}
    assert len(read) == 2
    write(page.with_suffix(".layout"), {"role": "reader"})
    assert probe.read(6.0) == {0: RankPlacement("role=reader")}
    pages.close()


def test_a_rank_without_a_mesh_stands_where_its_described_groups_say(tmp_path: Path) -> None:
    page = write_page(tmp_path, rank=5)
    group = {"title": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": [1, 5], "slot": 1, "digest": "ff"}
    write(page.with_suffix(".groups"), {"1": group})
    pages = Pages(tmp_path)
    pages.refresh()
    assert LayoutsProbe(pages.held).read(0.0)[5].layout == "pp=1/2"
    pages.close()
