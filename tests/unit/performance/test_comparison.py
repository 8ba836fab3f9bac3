from __future__ import annotations

from holdfast_sidecar.performance.traces import MOST_OPERATORS, TraceRow, operators, parts, verdict
from holdfast_sidecar.records.checkpoint import OperatorTime, TracedRank


def traced(rank: int, parts_us: dict[str, int], **times: float) -> TracedRank:
    ran = [OperatorTime(name.replace("_", "::"), us, 1.0) for name, us in times.items()]
    return TracedRank(rank, "saved", parts_us=parts_us, operators=ran)


SLOW = traced(5, {"forward": 900, "backward": 300, "communicating": 10}, aten_mm=700, aten_add=40)
PEER = traced(2, {"forward": 400, "backward": 290, "communicating": 520}, aten_mm=200, aten_t=60)


def test_parts_are_in_the_order_of_a_step_and_end_with_the_whole() -> None:
    rows = parts([SLOW, PEER])
    assert rows == [
        TraceRow("forward", (900, 400)),
        TraceRow("backward", (300, 290)),
        TraceRow("communicating", (10, 520)),
        TraceRow("step", (1210, 1210)),
    ]
    assert rows[0].difference_us == 500


def test_operators_that_differ_most_come_first_and_what_one_never_ran_took_it_nothing() -> None:
    assert operators([SLOW, PEER]) == [
        TraceRow("aten::mm", (700, 200)),
        TraceRow("aten::t", (0.0, 60)),
        TraceRow("aten::add", (40, 0.0)),
    ]


def test_differences_of_microseconds_are_no_news() -> None:
    assert operators([traced(0, {}, aten_mm=100.0), traced(1, {}, aten_mm=108.0)]) == []


def test_one_rank_alone_has_its_dearest_operators() -> None:
    many = traced(0, {"forward": 7}, **{f"op{number}": float(number) for number in range(40)})
    rows = operators([many])
    assert [row.name for row in rows[:2]] == ["op39", "op38"]
    assert len(rows) == MOST_OPERATORS
    assert parts([many]) == [TraceRow("forward", (7,)), TraceRow("step", (7,))]


def test_the_verdict_names_the_part_and_the_operator_that_is_slow() -> None:
    told = verdict([SLOW, PEER])
    assert told.startswith("rank 5 takes 0.5 ms longer than rank 2 in forward")
    assert "aten::mm (+0.5 ms)" in told


def test_an_operator_that_takes_a_fraction_of_the_difference_is_not_called_its_reason() -> None:
    slow = traced(1, {"forward": 91_000}, c10d_allreduce=670, aten_mm=100)
    told = verdict([slow, traced(2, {"forward": 61_200}, c10d_allreduce=50, aten_mm=100)])
    assert told == (
        "rank 1 takes 29.8 ms longer than rank 2 in forward; no operator explains it: look at"
        " Python, sleep and input between them"
    )


def test_waiting_for_others_is_nobodys_slowness() -> None:
    assert verdict([PEER, SLOW]) == ""


def test_a_rank_that_tells_nothing_is_not_taken_for_one_that_took_no_time() -> None:
    silent = TracedRank(2, "saved")
    assert parts([SLOW, silent])[0].us == (900, None)
    assert parts([SLOW, silent])[0].difference_us == 0.0
    assert operators([SLOW, silent]) == []
    assert parts([silent]) == []
