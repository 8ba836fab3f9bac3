from __future__ import annotations

from holdfast_sidecar.cli.grafana.api import AnnotationChange, marks, plan_marks
from holdfast_sidecar.records.plan import Incident

OPEN = Incident(
    "ab12",
    attempt=1,
    cause="hang",
    culprit_node="b",
    culprit_ranks=[3],
    since_unix_s=1_700_000_000.0,
    detected_unix_s=1_700_000_005.0,
    decided="restart",
    ended_unix_s=1_700_000_006.0,
)
OVER = Incident(
    **(vars(OPEN) | {"recovered_unix_s": 1_700_000_030.5, "reopened_unix_s": 1_700_000_010.0})
)


def test_an_incident_is_marked_from_its_first_sign_to_every_rank_stepping_again() -> None:
    (mark,) = marks("chargpt", [OVER])
    assert (mark["time"], mark["timeEnd"]) == (1_700_000_000_000, 1_700_000_030_500)
    assert mark["tags"] == ["holdfast", "chargpt", "incident", "hang", "incident:ab12"]
    assert "Rank 3 on node b hung" in mark["text"]


def test_one_that_is_not_over_is_a_point_until_it_is() -> None:
    (mark,) = marks("chargpt", [OPEN])
    assert mark["time"] == mark["timeEnd"]


def test_text_of_a_script_is_no_markup() -> None:
    (mark,) = marks("chargpt", [Incident(**(vars(OVER) | {"cause": "<script>"}))])
    assert "<script>" not in mark["text"]


def test_what_is_marked_is_not_marked_again() -> None:
    wanted = marks("chargpt", [OVER])
    there = [{"id": 7, **wanted[0]}]
    assert plan_marks(wanted, there) == []
    assert plan_marks(wanted, []) == [AnnotationChange(wanted[0])]


def test_one_that_is_over_by_now_is_brought_to_an_end() -> None:
    (before,), wanted = marks("chargpt", [OPEN]), marks("chargpt", [OVER])
    assert plan_marks(wanted, [{"id": 7, **before}]) == [AnnotationChange(wanted[0], 7)]


def test_a_point_that_grafana_tells_without_its_end_is_the_same() -> None:
    wanted = marks("chargpt", [OPEN])
    assert plan_marks(wanted, [{"id": 7, **wanted[0], "timeEnd": 0}]) == []


def test_marks_of_others_are_left_alone() -> None:
    wanted = marks("chargpt", [OVER])
    theirs = {"id": 8, "time": 1, "tags": ["holdfast", "chargpt"], "text": "a note"}
    assert plan_marks(wanted, [theirs]) == [AnnotationChange(wanted[0])]
