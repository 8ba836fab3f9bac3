"""Slowness in words."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.records.slow_job import SLOW

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.records.formatting import CAUSES, brief, cost, if_only, percent, who
from holdfast_sidecar.records.reports import Performance, RankSteps
from holdfast_sidecar.records.steps import SlowCause, WhatIf


def test_who_is_slow_is_said_in_one_line() -> None:
    assert brief(SLOW) == (
        "rank 5 on b, +31 % since step 1200: cpu_quota; the job would be 18 % faster without it"
    )
    even = dataclasses.replace(SLOW, cause=SlowCause.UNEVEN_WORK)
    assert brief(even).endswith("uneven_work; the job would be 18 % faster with even work")
    idle = dataclasses.replace(SLOW, gain=0.001)
    assert brief(idle).endswith("since step 1200: cpu_quota")


@pytest.mark.parametrize(
    ("ranks", "node", "words"),
    [
        ([4, 5], "b", "ranks 4, 5 on b"),
        ([], "b", "node b"),
        ([3], "", "rank 3"),
        ([], "", "somebody"),
        (list(range(20)), "b", "ranks 0, 1, 2, 3, 4, 5, 6, 7, … on b"),
    ],
)
def test_who_is_named_as_far_as_it_is_known(ranks: list[int], node: str, words: str) -> None:
    assert who(dataclasses.replace(SLOW, ranks=ranks, node=node)) == words


@pytest.mark.parametrize(
    ("kind", "what", "words"),
    [
        ("rank", "rank 5", "18 % faster without rank 5"),
        ("work", "even work", "18 % faster with even work (sequence lengths)"),
        ("stage", "stage 2", "18 % faster with stage 2 as fast as the other stages"),
        ("cause", "data_loading", "18 % faster were nobody slow by data_loading"),
    ],
)
def test_what_would_make_the_job_faster(kind: str, what: str, words: str) -> None:
    assert if_only(WhatIf(what, kind, 0.18, 1.0)) == words


def test_every_cause_has_words() -> None:
    assert set(CAUSES) == set(SlowCause)


def job(memory_total: int) -> Performance:
    return Performance(1.0, 8, None, [RankSteps(0, "a", memory_total=memory_total)])


def test_time_is_worth_what_was_said_a_gpu_costs() -> None:
    on_gpus, without = job(memory_total=1 << 30), job(memory_total=0)
    paid, unpaid = CostSettings(2.5), CostSettings()
    assert cost(360.0, on_gpus, paid) == "6 min of the job, 0.80 GPU hours, 2.00 USD"
    assert cost(360.0, on_gpus, unpaid) == "6 min of the job, 0.80 GPU hours"
    assert cost(360.0, without, paid) == "6 min of the job, 0.80 GPU hours, 2.00 USD"
    assert cost(360.0, without, unpaid) == "6 min of the job, 0.80 rank hours"


def test_shares_are_said_with_a_digit_more_where_they_are_small() -> None:
    assert [percent(one) for one in (0.182, 0.0995, 0.062, 0.0)] == [
        "18 %",
        "10 %",
        "6.2 %",
        "0.0 %",
    ]
