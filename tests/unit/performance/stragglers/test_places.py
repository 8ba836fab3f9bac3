from __future__ import annotations

from typing import Any

from holdfast_sidecar.performance.stragglers.groups import find_places
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.reports import FINISHED, RankReport
from holdfast_sidecar.records.steps import ProcessGroup


def rank(number: int, **told: Any) -> RankReport:
    return RankReport(number, 0, 100, 8, "backward", 0.1, 0.1, 0.1, **told)


def test_ranks_stand_on_the_node_that_reports_them() -> None:
    groups = ["default_pg/ff/4", "", "mesh_dp/aa/2", ""]
    told = {"a": [rank(0, layout="dp=0/2 tp=0/2", groups=groups)], "b": [rank(1)]}
    places = find_places(told, {})
    assert (places[0].node, places[0].coordinate["dp"], places[0].shape["tp"]) == ("a", 0, 2)
    assert places[0].groups == (
        ProcessGroup("default_pg", "ff", 4),
        None,
        ProcessGroup("mesh_dp", "aa", 2),
        None,
    )
    assert (places[1].node, places[1].role, dict(places[1].coordinate)) == ("b", "", {})


def test_of_one_role_are_those_of_whom_launcher_script_and_pipeline_say_the_same() -> None:
    layouts = {
        0: "pp=0/2 dp=0/2",
        1: "pp=0/2 dp=1/2",
        2: "pp=1/2 dp=0/2",
        3: "pp=0/1 dp=1/2",
        4: "role=evaluator",
        5: "pp=1/2 role=trainer",
    }
    told = {"a": [rank(number, layout=text) for number, text in layouts.items()]}
    roles = {number: place.role for number, place in find_places(told, {3: "spare"}).items()}
    assert roles == {
        0: "pp 0",
        1: "pp 0",
        2: "pp 1",
        3: "spare",
        4: "evaluator",
        5: "trainer, pp 1",
    }


def test_ranks_that_are_gone_or_done_have_no_place() -> None:
    told = {"a": [rank(0, alive=False), rank(1, ending=FINISHED), rank(2)]}
    assert set(find_places(told, {})) == {2}


def chained(*layouts: str) -> list[RankPlace]:
    """One rank each, of layouts in this order."""
    told = {"a": [rank(number, layout=text) for number, text in enumerate(layouts)]}
    return list(find_places(told, {}).values())


def test_ranks_that_pass_messages_along_a_chain_are_its_stages() -> None:
    two_replicas = ("with=2 after=-1", "with=3 after=-1", "with=0 after=0", "with=1 after=1")
    places = chained(*two_replicas)
    assert [place.role for place in places] == ["pp 0", "pp 0", "pp 1", "pp 1"]
    assert [place.stages for place in places] == [2] * 4


def test_ranks_that_swap_messages_of_which_no_chain_follows_have_no_role_of_anothers() -> None:
    places = chained("with=1 after=1", "with=0 after=0", "", "")
    assert [place.is_unknown_stage for place in places] == [True, True, False, False]
    assert len({place.role for place in places}) == 3
    places = chained("with=1 after=-1", "", "with=9")
    assert [place.is_unknown_stage for place in places] == [True, True, False]


def test_what_the_script_calls_a_rank_tells_what_its_messages_do_not() -> None:
    places = chained("with=1 after=1", "role=a with=0 after=0")
    assert [place.is_unknown_stage for place in places] == [True, False]
    assert places[1].role == "a with=0 after=0"


def test_on_its_host_alone_is_who_has_no_gpu_and_talks_over_gloo() -> None:
    """Other devices are not asked, but have backends of their own."""
    ranks = [
        rank(0, is_gloo_alone=True),
        rank(1, is_gloo_alone=True, memory_total=2**34),
        rank(2, memory_total=2**34),
        rank(3),
    ]
    places = find_places({"a": ranks}, {})
    assert [place.is_host_only for place in places.values()] == [True, False, False, False]
    assert [place.has_device for place in places.values()] == [False, True, True, False]
