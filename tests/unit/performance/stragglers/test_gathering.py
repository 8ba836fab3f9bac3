"""What the judge gets of all nodes: new lines once, places that stay the same object."""

from __future__ import annotations

from typing import Any

from holdfast_sidecar.performance.stragglers.frames import LineCollector
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import FIELDS, StepLine, spell


def line(rank: int, step: int) -> StepLine:
    return StepLine(rank, step, 1, 1, *[0] * (FIELDS - 4))


def rank(number: int, **told: Any) -> RankReport:
    return RankReport(number, 0, 100, 8, "backward", 0.1, 0.1, 0.1, **told)


def report(node: str, *ranks: RankReport, steps: Any = (), attempt: int = 1) -> NodeReport:
    found = [
        Finding(Kind.HOST_HOT, node, 1.0, 0.9),
        Finding(Kind.STRAGGLER, node, 1.0, 0.9, list(range(3))),
    ]
    texts = [spell(one) for one in steps]
    return NodeReport(node, "i", 1, 0, 0, attempt, True, list(ranks), found, steps=texts)


def test_lines_are_taken_once_however_often_they_are_told() -> None:
    gathering = LineCollector()
    first = report("b", rank(2), steps=[line(2, 4), line(2, 5)])
    gathering.hear_others({"a": first, "b": first}, "a", 1)
    assert gathering.take() == [line(2, 4), line(2, 5)]
    gathering.hear_others({"b": first}, "a", 1)
    assert not gathering.is_new
    later = report("b", rank(2), steps=[line(2, 5), line(2, 6)])
    gathering.hear_others({"b": later}, "a", 1)
    assert gathering.take() == [line(2, 6)]
    assert gathering.take() == []


def test_lines_that_are_torn_or_of_another_attempt_are_left_out() -> None:
    gathering = LineCollector()
    old = report("b", rank(2), steps=[line(2, 4)], attempt=0)
    torn = NodeReport("c", "i", 1, 0, 0, 1, True, steps=["1 2 3", spell(line(3, 4))[:-2], "x"])
    gathering.hear_others({"b": old, "c": torn}, "a", 1)
    assert not gathering.is_new


def test_places_are_the_same_object_until_something_changed() -> None:
    gathering = LineCollector()

    def look(*others: NodeReport, alive: bool = True, **roles: int) -> Any:
        gathering.hear("a", [rank(0, alive=alive)], [])
        gathering.hear_others({one.node: one for one in others}, "a", 1)
        gathering.look({number: role for role, number in roles.items()})
        return gathering.places

    before = look(report("b", rank(1)))
    assert {number: place.node for number, place in before.items()} == {0: "a", 1: "b"}
    assert look(report("b", rank(1, loss=0.5))) is before
    moved = look(report("b", rank(1, layout="dp=1/2")))
    assert moved[1].coordinate == {"dp": 1}
    assert look(report("b", rank(1, layout="dp=1/2")), alive=False).keys() == {1}
    assert look(report("b", rank(1)), reader=1)[1].role == "reader"
    assert look().keys() == {0}


def test_all_have_told_once_the_last_of_them_has() -> None:
    gathering = LineCollector()
    assert not gathering.is_whole
    gathering.hear("a", [rank(0)], [])
    gathering.hear_others({"b": report("b", rank(1))}, "a", 1)
    gathering.look({})
    gathering.add([line(0, 4), line(0, 5)])
    assert (gathering.is_new, gathering.is_whole) == (True, False)
    gathering.add([line(1, 4)])
    assert gathering.is_whole
    gathering.take()
    gathering.add([line(0, 6)])
    assert (gathering.is_new, gathering.is_whole) == (True, False)
    gathering.add([line(1, 6)])
    assert gathering.is_whole


def test_findings_are_those_of_all_nodes_but_for_who_is_slow() -> None:
    gathering = LineCollector()
    gathering.hear("a", [rank(0)], [Finding(Kind.DISK_FULL, "a", 1.0, 0.9)])
    gathering.hear_others({"b": report("b", rank(1))}, "a", 1)
    assert [(f.kind, f.node) for f in gathering.findings()] == [
        (Kind.DISK_FULL, "a"),
        (Kind.HOST_HOT, "b"),
    ]
    assert set(gathering.reports()) == {0, 1}


def test_stages_that_lie_on_several_nodes_are_known_once_all_of_them_have_told() -> None:
    """Of one node's ranks alone no chain follows."""
    gathering = LineCollector()
    first = rank(0, layout="with=1 after=-1")
    last = report("b", rank(1, layout="with=0 after=0"))

    def roles(**others: NodeReport) -> dict[int, str]:
        gathering.hear("a", [first], [])
        gathering.hear_others(others, "a", 1)
        gathering.look({})
        return {number: place.role for number, place in gathering.places.items()}

    assert roles() == {0: "stage of rank 0"}
    assert roles(b=last) == {0: "pp 0", 1: "pp 1"}
    before = gathering.places
    assert roles(b=last) == {0: "pp 0", 1: "pp 1"}
    assert gathering.places is before
    assert roles() == {0: "stage of rank 0"}
