"""`bench gpu-anatomy`: its figures, and its program on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
from bench.benchmark import NotRun, Sample
from bench.figures import NOT_RUN, missed
from bench.gpu_anatomy import events, training
from bench.gpu_anatomy.goals import figures
from bench.gpu_anatomy.names import TRAINING
from bench.gpu_anatomy.rows import BENCHMARK


def pair(slower: float = 1.0, **known: Any) -> list[Sample]:
    usual = {"row": TRAINING, "took_us": [1000.0] * 5, "waits": 2, "refused": "", "device_lags": 9}
    took_us = [1000.0 * slower] * 5
    return [{**usual, "hooked": False}, {**usual, "hooked": True, "took_us": took_us, **known}]


def test_without_a_gpu_every_figure_is_not_run() -> None:
    assert {figure.met for figure in figures([])} == {NOT_RUN}
    for row in BENCHMARK.rows:
        assert {one.met for one in figures([{"row": row, "not_run": "no GPU"}])} == {NOT_RUN}


def test_hooks_that_take_next_to_nothing_and_wait_for_nothing_meet_the_goals() -> None:
    found = figures([*pair(1.001), *pair(0.999), *pair(1.001)])
    assert not missed(found)


@pytest.mark.parametrize(
    "known",
    [{"slower": 1.003}, {"waits": 3}, {"refused": "synchronizing"}, {"device_lags": 0}],
)
def test_each_fault_misses_a_goal(known: dict[str, Any]) -> None:
    assert missed(figures(pair(**known)))


@pytest.mark.torch
def test_a_machine_without_a_gpu_can_not_be_measured() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this one has a GPU")
    for measure in (
        lambda: events.measure(1, 1),
        lambda: training.measure("cuda", 1, 1, 1),
    ):
        with pytest.raises(NotRun, match="there is no GPU"):
            measure()


@pytest.mark.torch
def test_the_program_trains_with_hooks_and_without() -> None:
    hooked, bare = (training.run("cpu", which, blocks=2, steps=3) for which in (True, False))
    assert len(hooked["took_us"]) == len(bare["took_us"]) == 2
    assert (hooked["refused"], hooked["waits"], hooked["device_lags"]) == ("", 0, 0)
