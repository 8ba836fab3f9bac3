from __future__ import annotations

from typing import Any

from holdfast_sidecar.ranks.stacks import SuspectProcess, choose_suspects, file_name


def view(state: str, **children: str) -> dict[str, Any]:
    return {
        "status": f"Name:\tpython\nState:\t{state} (so)\n",
        "children": {
            pid.removeprefix("p"): {"stat": f"{pid} (pt (data) worker) {of} 1 1 1" + " 0" * 40}
            for pid, of in children.items()
        },
    }


def chosen(views: dict[int, dict[str, Any]], **given: Any) -> list[SuspectProcess]:
    options: dict[str, Any] = {"answered": set(), "culprits": set(), "wants_native": False} | given
    return choose_suspects(views, {rank: 100 + rank for rank in views}, **options)


def test_who_has_answered_is_left_alone() -> None:
    views = {0: view("S"), 1: view("T"), 2: view("S")}
    assert chosen(views, answered={0}, culprits={1}) == [
        SuspectProcess(1, 101, is_stopped=True, has_answered=False),
        SuspectProcess(2, 102, is_stopped=False, has_answered=False),
    ]


def test_native_frames_are_read_of_culprits_only_and_only_when_wanted() -> None:
    views = {0: view("S"), 1: view("S")}
    assert chosen(views, answered={0, 1}, culprits={1}) == []
    native = chosen(views, answered={0, 1}, culprits={1}, wants_native=True)
    assert native == [SuspectProcess(1, 101, is_stopped=False, has_answered=True)]


def test_children_of_a_culprit_that_stand_still_are_looked_at_and_no_others() -> None:
    children = {"p7": "T", "p8": "S", "p9": "D", "p6": "Z"}
    views = {0: view("S", **children), 1: view("S", p5="T")}
    assert chosen(views, answered={0, 1}, culprits={0}) == [
        SuspectProcess(-7, 7, is_stopped=True, has_answered=False),
        SuspectProcess(-9, 9, is_stopped=False, has_answered=False),
    ]


def test_not_all_of_many_children_are_looked_at() -> None:
    views = {0: view("S", **{f"p{pid}": "T" for pid in range(50, 99)})}
    assert len(chosen(views, answered={0}, culprits={0})) == 4


def test_a_child_that_just_went_is_no_suspect() -> None:
    gone = view("S", p7="T")
    gone["children"]["7"]["stat"] = ""
    assert chosen({0: gone}, answered={0}, culprits={0}) == []


def test_stacks_are_kept_under_the_names_of_ranks_and_the_pids_of_children() -> None:
    assert [file_name(3), file_name(-7)] == ["rank-3-stacks.txt", "child-7-stacks.txt"]
