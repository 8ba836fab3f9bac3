"""A node's part of a trace: real pages and files, and the real child that sums up."""

from __future__ import annotations

import dataclasses
import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pretend_pages import write_page

from holdfast.contract import page
from holdfast.contract.page import OrderKind, Reply, ReplyState
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.performance import traces
from holdfast_sidecar.performance.traces import KEPT, SUM_UP_S, NodeTraces
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.checkpoint import OperatorTime, TracedPart, TracedRank, TraceOrder

ORDER = TraceOrder("t1", 2, 5, 40, 1, "armed", 60.0, "r1", [4, 5], [5])


class Node:
    """A node with ranks 4 and 5, whose answers the test writes."""

    def __init__(self, root: Path) -> None:
        (root / "shm").mkdir()
        self.places = Paths(root / "shm", root / "state")
        self.files = {
            rank: write_page(root / "shm", attempt=2, local_rank=local, epoch=5, rank=rank)
            for local, rank in enumerate((4, 5, 6))
        }
        self.pages = Pages(root / "shm")
        self.pages.refresh()
        self.traces = NodeTraces(self.places)

    def reply(self, rank: int, state: ReplyState, identifier: str = "t1") -> None:
        with self.files[rank].open("r+b") as file:
            file.seek(page.reply_offset(OrderKind.TRACE))
            file.write(page.pack_reply(Reply(state, 40, 77, 5_000_000, identifier)))

    def write(self, rank: int, content: bytes, **facts: object) -> Path:
        folder = self.places.trace(2, "t1")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / page.trace_facts_name(rank)).write_text(json.dumps(facts))
        (folder / page.trace_name(rank)).write_bytes(content)
        return folder / page.trace_name(rank)

    def follow(self, order: TraceOrder | None = ORDER, now_s: float = 0.0) -> TracedPart | None:
        return self.traces.follow(order, self.pages.held(), now_s)

    def rank(self, number: int, now_s: float = 0.0) -> TracedRank:
        part = self.follow(now_s=now_s)
        assert part is not None
        return next(one for one in part.ranks if one.rank == number)

    def summed_up(self, number: int) -> TracedRank:
        until_s = time.monotonic() + 30
        while not (found := self.rank(number)).is_summed_up:
            assert time.monotonic() < until_s
            time.sleep(0.02)
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.traces.close()
    made.pages.close()


MULTIPLIES = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9, "pid": 1, "tid": 1}
TRACE = gzip.compress(json.dumps({"traceEvents": [MULTIPLIES]}).encode())


def test_only_the_ranks_that_are_meant_are_told_of(node: Node) -> None:
    part = node.follow()
    assert part == TracedPart("t1", [TracedRank(4), TracedRank(5)])
    elsewhere = dataclasses.replace(ORDER, identifier="t2", ranks=[9])
    assert node.follow(elsewhere) is None
    assert node.follow(dataclasses.replace(ORDER, identifier="t3", attempt=1)) is None


def test_a_trace_that_is_there_is_told_with_its_place_and_parts(node: Node) -> None:
    path = node.write(4, TRACE, parts_us={"forward": 12})
    node.reply(4, ReplyState.SAVED)
    assert node.rank(4) == TracedRank(
        4, "saved", socket.gethostname(), str(path), 77, 0.005, {"forward": 12}
    )


def test_those_that_are_compared_are_summed_up_by_a_child(node: Node) -> None:
    node.write(5, TRACE, parts_us={"forward": 12})
    node.reply(5, ReplyState.SAVED)
    assert not node.rank(5).is_summed_up
    assert node.summed_up(5).operators == [OperatorTime("aten::mm", 9.0, 1.0)]


def test_a_file_that_is_no_trace_is_told_as_such(node: Node) -> None:
    node.write(5, b"nonsense")
    node.reply(5, ReplyState.SAVED)
    assert "BadGzipFile" in node.summed_up(5).error


def test_a_child_that_takes_too_long_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_command", lambda path: ["sleep", "60"])
    node.write(5, TRACE)
    node.reply(5, ReplyState.SAVED)
    node.rank(5)
    (reading,) = node.traces._readings.values()
    found = node.rank(5, now_s=SUM_UP_S + 1)
    assert (found.is_summed_up, found.error) == (True, f"not summed up within {SUM_UP_S:g} s")
    assert reading.process.returncode is not None


def test_children_end_with_the_order(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_command", lambda path: ["sleep", "60"])
    node.write(5, TRACE)
    node.reply(5, ReplyState.SAVED)
    node.rank(5)
    (reading,) = node.traces._readings.values()
    assert node.follow(None) is None
    assert reading.process.returncode is not None


def test_why_a_rank_has_no_trace_is_its_own_word(node: Node) -> None:
    node.write(5, b"", error="the script's own profiler is active")
    node.reply(5, ReplyState.FAILED)
    found = node.rank(5)
    assert (found.state, found.error) == ("failed", "the script's own profiler is active")


def test_an_answer_to_another_order_is_none_to_this_one(node: Node) -> None:
    node.reply(5, ReplyState.SAVED, identifier="t0")
    assert node.rank(5) == TracedRank(5)


def test_what_was_taken_is_told_when_the_rank_has_gone(node: Node) -> None:
    node.write(4, TRACE)
    node.reply(4, ReplyState.SAVED)
    before = node.follow()
    assert node.traces.follow(ORDER, [], 0.0) == before


def test_a_name_that_is_no_folder_is_not_followed(node: Node) -> None:
    assert node.follow(dataclasses.replace(ORDER, identifier="../../etc")) is None


def test_of_an_attempts_traces_the_newest_stay(node: Node) -> None:
    root = node.places.trace(2, "x").parent
    for number in range(12):
        (root / f"old{number}").mkdir(parents=True)
    node.follow()
    assert len(list(root.iterdir())) == KEPT - 1


def test_facts_that_are_no_numbers_stop_nothing(node: Node) -> None:
    node.write(4, TRACE, parts_us={"forward": "long", "backward": 3})
    node.reply(4, ReplyState.SAVED)
    assert node.rank(4).parts_us == {"backward": 3}
