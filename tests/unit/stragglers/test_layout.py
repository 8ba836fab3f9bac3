from __future__ import annotations

import json

import pytest

from holdfast_sidecar.stragglers.layout import (
    parse_groups,
    parse_layout,
    spell_groups,
    spell_layout,
)
from holdfast_sidecar.stragglers.place import Group


def layout(**told: object) -> str:
    return spell_layout(json.dumps(told))


def test_a_layout_says_of_each_dimension_where_and_of_how_many() -> None:
    told = layout(dims=["pp", "dp", "tp"], shape=[2, 4, 2], coordinate=[0, 3, 1])
    assert told == "pp=0/2 dp=3/4 tp=1/2"
    parsed = parse_layout(told)
    assert parsed.coordinate == {"pp": 0, "dp": 3, "tp": 1}
    assert parsed.shape == {"pp": 2, "dp": 4, "tp": 2}
    assert parsed.role == ""


def test_what_the_script_calls_a_rank_comes_last_and_may_have_blanks() -> None:
    told = layout(dims=["dp"], shape=[2], coordinate=[1], role="reader of\nlogs")
    assert told == "dp=1/2 role=reader of logs"
    assert parse_layout(told).role == "reader of logs"
    assert parse_layout(layout(role="evaluator")).role == "evaluator"
    assert parse_layout(layout(role="role=1 dp=3/4")) == ({}, {}, "role=1 dp=3/4", 0)


def test_a_stage_counts_as_a_dimension_where_the_mesh_has_none_for_it() -> None:
    assert layout(stage=1, stages=4) == "pp=1/4"
    assert layout(stage=[1, 3], stages=4) == "pp=1/4"
    assert layout(dims=["pipe"], shape=[2], coordinate=[1], stage=3, stages=4) == "pp=1/2"


def test_into_how_many_micro_batches_a_pipeline_cuts_a_batch_is_no_dimension() -> None:
    told = layout(stage=1, stages=4, micro_batches=8, role="reader")
    assert told == "pp=1/4 micro_batches=8 role=reader"
    assert parse_layout(told) == ({"pp": 1}, {"pp": 4}, "reader", 8)
    assert layout(stage=1, stages=4, micro_batches=None) == "pp=1/4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{torn",
        "[]",
        '{"dims":["dp"],"shape":[2]}',
        '{"dims":["dp"],"shape":[2],"coordinate":3}',
    ],
)
def test_what_says_nothing_is_no_layout(text: str) -> None:
    assert spell_layout(text) == ""
    assert spell_groups(text) == []


def test_groups_are_told_in_the_order_of_their_slots() -> None:
    file = {
        "2": {"title": "mesh_dp", "ranks": [0, 2], "slot": 2, "digest": "aa"},
        "0": {"title": "default_pg", "ranks": [0, 1, 2, 3], "slot": 0, "digest": "ff"},
        "5": {"title": "a/b", "ranks": [0, 1], "slot": 3, "digest": "bb"},
        "7": {"title": "", "ranks": [0], "slot": None, "digest": "cc"},
        "8": {"title": "", "ranks": [0]},
    }
    told = spell_groups(json.dumps(file))
    assert told == ["default_pg/ff/4", "", "mesh_dp/aa/2", "a/b/bb/2"]
    assert parse_groups(told) == (
        Group("default_pg", "ff", 4),
        None,
        Group("mesh_dp", "aa", 2),
        Group("a/b", "bb", 2),
    )
    assert parse_groups([]) == parse_groups(["x", "//", "a/b/c"]) == (None, None, None, None)
