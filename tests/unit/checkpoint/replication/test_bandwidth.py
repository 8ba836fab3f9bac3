from __future__ import annotations

import random

from holdfast_sidecar.checkpoint.replication.wire import BURST_S, Bucket


def test_no_cap_never_waits() -> None:
    bucket = Bucket(0)
    assert all(bucket.take(10**9, now_s=0.0) == 0 for _ in range(5))


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    bucket = Bucket(1000.0)
    assert bucket.take(int(1000 * BURST_S), now_s=5.0) == 0
    assert bucket.take(500, now_s=5.0) == 0.5
    assert bucket.take(500, now_s=5.5) == 0.5


def test_idle_time_is_not_saved_up() -> None:
    bucket = Bucket(1000.0)
    bucket.take(1, now_s=0.0)
    assert bucket.take(1100, now_s=3600.0) == 1.0


def test_who_obeys_never_exceeds_the_rate_by_more_than_a_burst() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        rate, now_s, total = chance.uniform(1e3, 1e9), 0.0, 0
        bucket = Bucket(rate)
        for _ in range(200):
            size = chance.randint(1, 1 << 20)
            wait_s = bucket.take(size, now_s)
            total += size
            now_s += wait_s + chance.choice([0.0, 0.0, chance.random()])
            assert total <= rate * (now_s + BURST_S) * (1 + 1e-9) + 1, seed


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    bucket = Bucket(1000.0)
    bucket.take(100, now_s=10.0)
    assert bucket.take(1000, now_s=9.0) == 1.0
