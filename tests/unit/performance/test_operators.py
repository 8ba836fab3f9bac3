from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.performance.trace_child import (
    LONGEST_NAME,
    MOST_TOLD,
    NO_OPERATOR,
    answer,
    count_steps,
    sum_up,
)
from holdfast_sidecar.records.checkpoint import OperatorTime


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 9, "tid": tid}


STEP = event("ProfilerStep#7", 0, 100, "user_annotation")


def told(*events: dict[str, Any], steps: int = 1) -> dict[str, tuple[float, float]]:
    return {one.name: (one.self_us, one.calls) for one in sum_up(events, steps)}


def test_an_operator_has_what_it_did_not_spend_in_others() -> None:
    events = (
        STEP,
        event("aten::linear", 10, 50),
        event("aten::t", 12, 5),
        event("aten::addmm", 20, 30),
        event("aten::relu", 70, 10),
    )
    assert told(*events) == {
        NO_OPERATOR: (40.0, 1.0),
        "aten::linear": (15.0, 1.0),
        "aten::t": (5.0, 1.0),
        "aten::addmm": (30.0, 1.0),
        "aten::relu": (10.0, 1.0),
    }


def test_threads_are_apart_and_neighbours_that_touch_are_no_nest() -> None:
    events = (event("a", 0, 10), event("b", 10, 10), event("a", 0, 7, tid=2))
    assert told(*events) == {"a": (17.0, 2.0), "b": (10.0, 1.0)}


def test_times_are_means_over_the_steps_that_the_trace_has() -> None:
    events = (STEP, event("ProfilerStep#8", 100, 100, "user_annotation"), event("a", 5, 30))
    assert count_steps(events) == 2
    assert told(*events, steps=2)["a"] == (15.0, 0.5)
    assert count_steps([event("a", 0, 1)]) == 1


def test_what_runs_on_a_device_is_no_time_of_the_host() -> None:
    events = (event("gemm", 0, 80, "kernel", tid=7), event("aten::mm", 0, 5))
    assert told(*events) == {"on the device: gemm": (80.0, 1.0), "aten::mm": (5.0, 1.0)}


def test_a_name_that_overlaps_the_end_of_another_takes_only_what_lies_in_it() -> None:
    assert told(event("a", 0, 10), event("b", 8, 10)) == {"a": (8.0, 1.0), "b": (10.0, 1.0)}


def test_only_the_dearest_are_told_and_long_names_are_cut() -> None:
    events = [event(f"op{number}", 100 * number, number) for number in range(1, 60)]
    events.append(event("k" * 500, 10_000, 99))
    found = sum_up(events, 1)
    assert len(found) == MOST_TOLD
    assert len(found[0].name) == LONGEST_NAME


def test_what_is_no_event_of_a_kind_that_counts_is_passed_over() -> None:
    odd = [{"ph": "M", "name": "process_name"}, {"ph": "X", "cat": "cpu_op", "name": "half"}]
    assert told(*odd, event("a", 0, 3), event("Trace", 0, 9, "Trace")) == {"a": (3.0, 1.0)}


def test_the_child_answers_for_a_file_or_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [event("a", 0, 3)]}).encode()))
    assert json.loads(answer(path)) == {"operators": [vars(OperatorTime("a", 3.0, 1.0))]}


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no json"), gzip.compress(b"[]"), gzip.compress(b"{}")[:-9]],
    ids=["empty", "not packed", "no JSON", "no trace", "cut"],
)
def test_a_file_that_is_no_trace_is_an_error_and_no_crash(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    assert json.loads(answer(path))["error"]
    assert json.loads(answer(tmp_path / "missing"))["error"].startswith("FileNotFoundError")
