from __future__ import annotations

import json

import pytest

from holdfast_sidecar.performance.stragglers.placement import (
    Messages,
    parse_layout,
    parse_messages,
    spell_groups,
    spell_layout,
)
from holdfast_sidecar.records.steps import ProcessGroup, parse_groups


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
        ProcessGroup("default_pg", "ff", 4),
        None,
        ProcessGroup("mesh_dp", "aa", 2),
        ProcessGroup("a/b", "bb", 2),
    )
    assert parse_groups([]) == parse_groups(["x", "//", "a/b/c"]) == (None, None, None, None)


def described(rank: int, told: dict[str, object] | None = None, **groups: list[int]) -> str:
    """The layout of a rank in groups with these descriptions."""
    file = {
        str(number): {"title": title, "ranks": ranks, "slot": None, "digest": "aa"}
        for number, (title, ranks) in enumerate(groups.items())
    }
    return spell_layout(json.dumps(told or {}), json.dumps(file), rank)


@pytest.mark.parametrize(
    ("pipeline", "replicas", "tensors"),
    [
        ("pp", "dp", "tp"),
        ("mesh_pp", "mesh_dp", "mesh_tp"),
        (
            "PIPELINE_MODEL_PARALLEL_GROUP",
            "DATA_PARALLEL_GROUP_GLOO",
            "TENSOR_MODEL_PARALLEL_GROUP",
        ),
        ("pipeline group", "data-parallel", "Tensor Parallel"),
    ],
)
def test_groups_of_a_known_purpose_place_their_members(
    pipeline: str, replicas: str, tensors: str
) -> None:
    groups = {pipeline: [1, 3, 5], replicas: [2, 3], tensors: [3]}
    assert sorted(described(3, None, **groups).split()) == ["dp=1/2", "pp=1/3", "tp=0/1"]


@pytest.mark.parametrize(
    "title",
    [
        *("default_pg", "undefined", "odd", "stage", "pp0", "mesh_dim_0", "data_pipeline"),
        *("MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_WITH_CP", "fsdp_reduce_scatter"),
    ],
)
def test_what_a_group_of_another_name_is_for_is_not_guessed(title: str) -> None:
    assert described(1, None, **{title: [0, 1, 2, 3]}) == ""


def test_groups_of_one_purpose_that_place_a_rank_differently_say_nothing_of_it() -> None:
    assert described(1, pp=[0, 1], PIPELINE_MODEL_PARALLEL_GROUP=[1, 2, 3]) == ""
    assert described(1, pp=[0, 1], pp_gloo=[0, 1]) == "pp=1/2"


def test_a_mesh_knows_better_than_groups_but_for_the_stages_that_it_leaves_out() -> None:
    mesh = {"dims": ["data"], "shape": [2], "coordinate": [0]}
    assert described(2, mesh, pp=[0, 2], dp=[2, 3], tp=[2, 4]) == "data=0/2 pp=1/2"
    mesh = {"dims": ["pipe"], "shape": [4], "coordinate": [3]}
    assert described(2, mesh, pp=[0, 2]) == "pp=3/4"
    assert described(2, {"stage": 5, "stages": 8}, pp=[0, 2], dp=[2, 3]) == "dp=0/2 pp=5/8"


def test_groups_that_this_rank_is_not_in_and_torn_ones_place_nobody() -> None:
    assert described(7, pp=[0, 1]) == ""
    assert spell_layout("{}", '{"0":{"title":"pp"},"1":3,"2":{"title":"pp","ranks":4}}', 0) == ""


MESSAGES: dict[str, object] = {"messages": {"after": 0, "with": [2, 0]}}


def test_messages_are_told_where_they_may_be_those_of_stages_that_nothing_names() -> None:
    told = described(1, MESSAGES)
    assert told == "with=0+2 after=0"
    assert parse_messages(told) == Messages(0, frozenset({0, 2}))
    assert parse_layout(told) == ({}, {}, "", 0)
    part = described(1, MESSAGES, default_pg=[0, 1, 2, 3], dp=[1, 3])
    assert part == "dp=0/2 with=0+2 after=0"


def test_messages_of_ranks_whose_place_is_known_are_not_told() -> None:
    assert described(1, MESSAGES, pp=[0, 1, 2]) == "pp=1/3"
    assert described(1, {**MESSAGES, "stage": 1, "stages": 3}) == "pp=1/3"
    assert described(1, {**MESSAGES, "role": "reader"}) == "role=reader"
    whole = {"dims": ["dp", "ring"], "shape": [2, 2], "coordinate": [0, 1]}
    assert described(1, {**MESSAGES, **whole}, default_pg=[0, 1, 2, 3]) == "dp=0/2 ring=1/2"


@pytest.mark.parametrize("torn", [{}, 3, {"after": 1}, {"after": "x", "with": [1]}])
def test_torn_messages_are_none(torn: object) -> None:
    assert described(1, {"messages": torn}) == ""
    assert parse_messages("dp=0/2") is None
    assert parse_messages("with=x after=0") == Messages(-2, frozenset())
