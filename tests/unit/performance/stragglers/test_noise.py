"""How restless healthy ranks are, and what evidence is worth by that."""

from __future__ import annotations

import math
import random
from collections import deque

import pytest

from holdfast_sidecar.performance.stragglers.statistics import (
    FEWEST_FRAMES,
    FEWEST_LONGER,
    FLOOR,
    Bar,
    Noise,
    fresh_of,
)


def watched(
    sigma: float, memory: float = 0.0, slow: float = 0.0, hiccups: float = 0.0, frames: int = 300
) -> Noise:
    """Of eight ranks; one of them is slow all the time."""
    draw, noise = random.Random(1), Noise()
    wander = [0.0] * 8
    pasts: list[deque[float]] = [deque(maxlen=8) for _ in range(8)]
    for _ in range(frames):
        for rank, past in enumerate(pasts):
            fresh = sigma * math.sqrt(1 - memory**2) * draw.gauss(0, 1)
            wander[rank] = memory * wander[rank] + fresh
            hiccup = 2.0 if draw.random() < hiccups else 0.0
            past.append(wander[rank] + hiccup + (slow if rank == 0 else 0.0))
        if len(pasts[0]) > 2:
            noise.take(pasts, pasts[1:])
    return noise


@pytest.mark.parametrize("sigma", [0.01, 0.05])
@pytest.mark.parametrize("memory", [0.0, 0.4])
def test_noise_is_measured_with_and_without_memory(sigma: float, memory: float) -> None:
    noise = watched(sigma, memory)
    assert noise.sigma == pytest.approx(sigma, rel=0.15)
    assert noise.likeness == pytest.approx(memory, abs=0.12)


def test_neither_a_slow_rank_nor_hiccups_raise_it() -> None:
    assert watched(0.02, slow=0.5, hiccups=0.01).sigma == pytest.approx(0.02, rel=0.15)


def test_ranks_without_any_noise_still_have_a_little() -> None:
    assert watched(0.0).sigma == FLOOR


def test_nothing_is_known_of_it_after_three_frames() -> None:
    assert watched(0.02, frames=3).sigma == 0.0


def test_longer_frames_are_quieter() -> None:
    noise = watched(0.04)
    noise.stretch(4.0)
    assert noise.sigma == pytest.approx(0.02, rel=0.15)


def test_an_echo_is_not_new_and_a_lasting_excess_is_so_in_part() -> None:
    assert fresh_of(0.4, before=1.0, likeness=0.4) == pytest.approx(0.24)
    assert fresh_of(0.1, before=0.1, likeness=0.4) == pytest.approx(0.06)
    assert fresh_of(0.1, before=0.0, likeness=0.4) == pytest.approx(0.1)


def test_more_ranks_want_more_evidence() -> None:
    few, many = (Bar.of(0.02, 0.3, ranks, ()) for ranks in (8, 4096))
    assert many.enough - few.enough == pytest.approx(math.log(512))


def test_no_frame_says_so_much_that_fewer_than_the_fewest_could_decide() -> None:
    for steps, fewest in ((1, FEWEST_FRAMES), (2, FEWEST_LONGER), (64, FEWEST_LONGER)):
        bar = Bar.of(FLOOR, 0.0, 8, (), steps)
        assert bar.mild.gain * bar.mild.limit * fewest <= bar.enough + 1e-9


@pytest.mark.parametrize("tail", [3, 30])
def test_healthy_frames_bring_evidence_no_more_often_than_it_says_whatever_their_tails(
    tail: int,
) -> None:
    draw = random.Random(tail)

    def student() -> float:
        return 0.03 * draw.gauss(0, 1) / math.sqrt(draw.gammavariate(tail / 2, 2) / tail)

    bar = Bar.of(0.033, 0.0, 8, [student() for _ in range(512)])
    half, gain, limit = bar.mild
    worth = [math.exp(gain * min(max(student() - half, -limit), limit)) for _ in range(20_000)]
    # One but for what 512 frames can't know of the tails; uncalibrated, heavy ones make it dozens.
    assert 0.4 < sum(worth) / len(worth) < 1.6
