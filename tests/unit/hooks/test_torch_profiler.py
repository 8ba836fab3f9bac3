"""torch's own profiler, begun and ended beside scripts that use it too."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from holdfast.guard import Guard  # noqa: E402
from holdfast.recording.torch_profiler import BEGINNINGS, SCRIPTS_OWN, KnownProfilers, TorchProfiler  # noqa: E402

pytestmark = pytest.mark.torch

CPU = [torch.profiler.ProfilerActivity.CPU]
KIND = torch.autograd.profiler.profile
OTHERS = KnownProfilers(KIND, Guard(lambda: None))
AS_TORCH_HAS_THEM = {name: vars(KIND)[name] for name in BEGINNINGS}


@pytest.fixture
def ours() -> Iterator[TorchProfiler]:
    made = TorchProfiler(torch, Guard(lambda: None), OTHERS)
    yield made
    made.drop()
    assert {name: vars(KIND)[name] for name in BEGINNINGS} == AS_TORCH_HAS_THEM
    assert not torch.autograd._profiler_enabled()


def work() -> None:
    weights = torch.ones(4, 4, requires_grad=True)
    (weights @ weights).sum().backward()


def names(path: Path) -> set[str]:
    with gzip.open(path) as file:
        return {event["name"] for event in json.load(file)["traceEvents"]}


def test_the_trace_has_the_marked_step_and_what_ran_in_it(
    ours: TorchProfiler, tmp_path: Path
) -> None:
    assert ours.obstacle() == ""
    ours.warm_up()
    torch.ones(3).cumsum(0)
    ours.begin()
    ours.mark(7)
    work()
    ours.end()
    torch.ones(3).cumprod(0)
    size = ours.write(tmp_path / "t.json.gz")
    assert size == (tmp_path / "t.json.gz").stat().st_size
    found = names(tmp_path / "t.json.gz")
    assert {"ProfilerStep#7", "aten::matmul"} <= found
    assert not {"aten::cumsum", "aten::cumprod"} & found
    assert [path.name for path in tmp_path.iterdir()] == ["t.json.gz"]


def test_a_profiler_of_the_script_is_an_obstacle_while_it_records(ours: TorchProfiler) -> None:
    with torch.profiler.profile(activities=CPU) as theirs:
        work()
        assert ours.obstacle() == SCRIPTS_OWN
    assert len(theirs.key_averages()) > 0
    assert ours.obstacle() == ""


def test_one_that_warms_up_by_its_schedule_is_an_obstacle_too(ours: TorchProfiler) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(activities=CPU, schedule=schedule) as theirs:
        assert ours.obstacle() == SCRIPTS_OWN
        theirs.step()
        work()
        theirs.step()
        assert ours.obstacle() == ""
    assert theirs.step_num == 2


@pytest.mark.parametrize("is_recording", [False, True], ids=["warm", "recording"])
def test_it_gives_way_to_a_profiler_that_the_script_begins(
    ours: TorchProfiler, is_recording: bool
) -> None:
    ours.warm_up()
    if is_recording:
        ours.begin()
        ours.mark(1)
    with torch.profiler.profile(activities=CPU) as theirs:
        work()
    assert ours.taken_by == "the script began a profiler of its own"
    assert any(event.key == "aten::matmul" for event in theirs.key_averages())


def test_it_gives_way_to_the_older_profiler_too(ours: TorchProfiler) -> None:
    ours.warm_up()
    ours.begin()
    with torch.autograd.profiler.profile() as theirs:
        work()
    assert ours.taken_by
    assert any(event.key == "aten::matmul" for event in theirs.key_averages())


def test_dropped_it_leaves_nothing_behind(ours: TorchProfiler, tmp_path: Path) -> None:
    ours.warm_up()
    ours.begin()
    held = ours._profile.profiler
    ours.drop()
    again: Any = TorchProfiler(torch, Guard(lambda: None), OTHERS)
    assert again.obstacle() == ""
    again.warm_up()
    again.begin()
    again.mark(2)
    work()
    again.end()
    again.write(tmp_path / "t.json.gz")
    assert held.entered
    assert "ProfilerStep#2" in names(tmp_path / "t.json.gz")
