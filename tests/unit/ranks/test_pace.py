from __future__ import annotations

import random

import pytest
from tests.unit.ranks.scene import history, look, steps

from holdfast_sidecar.ranks.history import (
    BUCKETS,
    KEPT,
    LONGEST_US,
    Durations,
    PhaseDurations,
    bucket_of,
    longest_us,
)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_never_too_low_and_at_most_a_quarter_too_high(share: float) -> None:
    chance = random.Random(3)
    values = [int(10 ** chance.uniform(0.0, 9.5)) for _ in range(1000)]
    exact_s = sorted(values)[max(0, round(share * len(values)) - 1)] / 1e6
    found_s = Durations().with_more(values).quantile_s(share)
    assert exact_s <= found_s <= 1.25 * exact_s


def test_every_duration_lies_in_the_bucket_that_ends_next_above_it() -> None:
    edges = [longest_us(bucket) for bucket in range(BUCKETS)]
    assert edges == sorted(set(edges))
    assert edges[-1] == LONGEST_US
    for bucket, edge_us in enumerate(edges):
        assert bucket_of(edge_us) == bucket
        assert bucket_of(edge_us + 1) == min(bucket + 1, BUCKETS - 1)


def test_nothing_known_takes_no_time_and_what_is_out_of_range_is_cut() -> None:
    assert Durations().quantile_s(0.99) == 0.0
    cut = Durations().with_more([-1, 2**40])
    assert cut.quantile_s(0.5) == 0.0
    assert cut.quantile_s(1.0) == pytest.approx(4294.967295)


def test_the_slowest_of_few_counts_and_of_many_the_usual() -> None:
    few = Durations().with_more([*[100_000] * 50, 5_000_000])
    assert few.quantile_s(0.99) >= 5.0
    many = Durations().with_more([*[100_000] * 500, 5_000_000])
    assert many.quantile_s(0.99) < 0.125


def test_it_keeps_its_size_and_forgets_another_era() -> None:
    sketch = Durations().with_more([10_000_000] * 3000)
    assert sketch.count <= KEPT
    later = sketch.with_more([100_000] * 8000)
    assert later.quantile_s(0.99) < 0.125
    assert len(later.counts) <= 2


def test_a_pace_leaves_the_first_two_steps_out_however_they_arrive() -> None:
    slow, usual = steps(2, forward=60_000), steps(4, forward=100)
    at_once = PhaseDurations().after((*slow, *usual))
    one_by_one = PhaseDurations()
    for record in (*slow, *usual):
        one_by_one = one_by_one.after((record,))
    assert at_once == one_by_one
    assert at_once.steps_learnt == 4
    assert at_once.parts["forward"].quantile_s(1.0) < 0.125


def test_nothing_of_an_attempt_is_known_in_the_next() -> None:
    old = history(look(1.0, records=steps(10, forward=100)))
    assert old.pace.steps_learnt == 8
    moved_on = history(look(1.0, records=steps(10, forward=100)), look(2.0, rank=1))
    assert moved_on.pace == PhaseDurations()
