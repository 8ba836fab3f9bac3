"""`holdfast trace` as it reads what is given, follows its request, and tells what came of it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.cli.requests import LOST, Settled
from holdfast_sidecar.cli.trace import (
    Collected,
    choose_here,
    collect,
    end,
    look,
    page,
    parse_ranks,
    spell,
)
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import OperatorTime, TracedPart, TracedRank, TraceOrder
from holdfast_sidecar.records.plan import Member, Plan, Request
from holdfast_sidecar.records.reports import NodeReport, RankReport

PLAN = Plan(0, 1, "running", [Member("a", "i", 0, 0, 2)], 2)
WHY = "rank 1 is 30% slower than its peers (cpu_quota)"


def rank(number: int, state: str = "saved", forward_us: int = 1000, **given: Any) -> TracedRank:
    fields: dict[str, Any] = {"host": socket.gethostname(), "path": f"/t/rank-{number}.json.gz"}
    ran = [OperatorTime("aten::mm", forward_us / 2, 3.0)]
    told = {"parts_us": {"forward": forward_us, "communicating": 500}, "operators": ran}
    return TracedRank(number, state, **(fields | told | given))


def order(state: str = "armed", *taken: TracedRank, reason: str = "", steps: int = 1) -> TraceOrder:
    return TraceOrder(
        "t1", 0, 1, 40, steps, state, 60.0, "r1", [0, 1], [1, 0], WHY, reason, taken=list(taken)
    )


def cluster(
    order: TraceOrder | None = None,
    refused: str | None = "",
    states: tuple[str, ...] = (),
    phase: str = "forward",
    step_s: float = 0.1,
) -> Cluster:
    ranks = [RankReport(number, 0, 1, 37, phase, 0.0, step_s, step_s) for number in (0, 1)]
    part = TracedPart("t1", [TracedRank(number, state) for number, state in enumerate(states)])
    node = NodeReport("a", "i", 1, 0, 1, 0, True, ranks=ranks, traced=part)
    requests = {} if refused is None else {"r1": Request("r1", "trace", refused=refused)}
    return Cluster(nodes={"a": node}, plan=PLAN, trace=order, requests=requests)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (cluster(), "waiting for the leader, or for another trace"),
        (cluster(phase="starting"), "waiting: the ranks are still starting"),
        (cluster(step_s=0.0), "waiting for a whole step of every rank, to tell who is slow"),
        (
            cluster(dataclasses.replace(order(), request="another"), step_s=0.0),
            "waiting for the leader, or for another trace",
        ),
        (cluster(order()), "waiting for step 40: the job is at step 37"),
        (cluster(order(), states=("armed", "armed")), "waiting for step 40: the job is at step 37"),
        (cluster(order(), states=("armed", "saving")), "tracing step 40: 1 of 2 ranks"),
        (cluster(order(), states=("saved", "saving")), "writing: 1 of 2 files are there"),
        (cluster(order(), states=("saved", "saved")), "comparing"),
        (cluster(order("void", reason="it ended")), Settled(False, "it ended")),
        (cluster(refused="there is no rank 9"), Settled(False, "there is no rank 9")),
        (cluster(refused=None), Settled(False, LOST)),
    ],
)
def test_it_tells_how_far_the_trace_is(seen: Cluster, told: Settled | str) -> None:
    assert look(seen, "r1", []) == told


def test_what_was_taken_is_kept_and_another_requests_order_is_not() -> None:
    kept: list[TraceOrder] = []
    done = order("taken", rank(0), rank(1))
    assert look(cluster(done), "r2", kept) == Settled(False, LOST)
    assert look(cluster(done), "r1", kept) == Settled(True, "taken")
    assert kept == [done]


def test_files_that_are_there_outlive_the_job() -> None:
    kept: list[TraceOrder] = []
    over = dataclasses.replace(PLAN, state="done")
    seen = dataclasses.replace(cluster(order(), states=("saved", "saving")), plan=over)
    assert end(cluster(order(), states=("saved", "saved")), "r1", kept) is None
    assert end(seen, "r1", kept) == Settled(True, "taken")
    assert [(one.rank, one.state) for one in kept[0].taken] == [(0, "saved"), (1, "saving")]
    none = dataclasses.replace(cluster(order(), states=("saving", "none")), plan=over)
    assert end(none, "r1", []) == end(seen, "r2", []) == Settled(False, "it has ended: done")


@pytest.mark.parametrize(("text", "ranks"), [(None, []), ("5", [5]), ("5,0,5", [5, 0])])
def test_ranks_are_read_in_their_order(text: str | None, ranks: list[int]) -> None:
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "1;2", "-1", "1,,2"])
def test_what_is_no_list_of_ranks_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(BadInput, match="--ranks"):
        parse_ranks(text)


def test_a_rank_that_there_is_not_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(BadInput, match="there is no rank 2: the job has ranks 0 to 1"):
        choose_here(PLAN, [0, 2], everyone=False)
    assert choose_here(PLAN, [], everyone=True) == [0, 1]
    assert choose_here(PLAN, [], everyone=False) == []


SLOW, PEER = rank(1, forward_us=3000), rank(0, forward_us=1000)


def test_the_slow_rank_stands_beside_its_peer_by_part_and_operator() -> None:
    told = page("j", order("taken", PEER, SLOW), [Collected(PEER, "/o/0"), Collected(SLOW, "/o/1")])
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert lines[0] == f"job j, step 40: {WHY}"
    assert "part of the step, ms rank 1 rank 0 difference" in lines
    assert "forward 3.00 1.00 +2.00" in lines
    assert "communicating 0.50 0.50 +0.00" in lines
    assert "aten::mm 1.50 0.50 +1.00" in lines
    assert any(line.startswith("rank 1 takes 2.0 ms longer than rank 0 in") for line in lines)
    assert any(line.startswith("rank 1: /o/1 (") for line in lines)
    assert "perfetto" in told


def test_a_file_of_another_node_is_named_with_its_host_and_a_failure_with_its_reason() -> None:
    far = rank(0, host="elsewhere")
    failed = TracedRank(1, "failed", error="the script's own profiler is active")
    done = order("taken", far, failed)
    told = page("j", done, [collect(one, done, None) for one in done.taken])
    assert "rank 0: elsewhere:/t/rank-0.json.gz (on another node" in told
    assert "rank 1: no trace: the script's own profiler is active" in told
    assert "difference" not in told


def test_files_of_this_machine_are_put_where_it_is_said(tmp_path: Path) -> None:
    source, out = tmp_path / "rank-1.json.gz", tmp_path / "out"
    source.write_bytes(b"trace")
    out.mkdir()
    one, done = rank(1, path=str(source)), order("taken")
    for _ in range(2):  # again: the file is there already
        found = collect(one, done, out)
        assert found.path == str(out / "step-00000040-rank-1.json.gz")
        assert Path(found.path).read_bytes() == b"trace"
    assert [path.name for path in out.iterdir()] == ["step-00000040-rank-1.json.gz"]
    assert collect(one, done, None).path == str(source)
    source.unlink()
    assert collect(one, done, out).path == ""


def test_a_file_that_cannot_be_put_there_is_told_where_it_lies_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "rank-1.json.gz", tmp_path / "out"
    source.write_bytes(b"trace")
    out.mkdir()

    def across(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def full(_: Path, target: Path) -> None:
        target.write_bytes(b"tr")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", across)
    monkeypatch.setattr(shutil, "copyfile", full)
    one, done = rank(1, path=str(source)), order("taken")
    found = collect(one, done, out)
    assert (found.path, [*out.iterdir()]) == (str(source), [])
    told = page("j", done, [found])
    assert f"it can't be put into {out}: No space left on device" in told


def test_a_rank_that_said_nothing_is_told_in_words() -> None:
    done = order("taken", rank(0), TracedRank(1, "armed"))
    told = page("j", done, [collect(one, done, None) for one in done.taken])
    assert "rank 1: no trace: it did not get to the step in time" in told


def test_scripts_get_all_of_it() -> None:
    told = json.loads(
        spell(order("taken", PEER, SLOW), [Collected(PEER, ""), Collected(SLOW, "/o")])
    )
    assert (told["step"], told["compared"]) == (40, [1, 0])
    assert told["parts_us"]["forward"] == [3000, 1000]
    assert told["operators_us"] == {"aten::mm": [1500.0, 500.0]}
    assert [one["collected"] for one in told["ranks"]] == ["", "/o"]
