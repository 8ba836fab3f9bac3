"""How often a server of our own is started again."""

from __future__ import annotations

import pytest

from holdfast_sidecar.store.embedded import LONGEST_PAUSE_S, pause_s


@pytest.mark.parametrize(
    ("ends", "now", "pause"),
    [
        ([100.0], 100.0, 0.1),
        ([100.0, 100.3], 100.3, 0.2),
        ([100.0, 100.3, 100.9], 100.9, 0.4),
        ([100.0, 2000.0], 2000.0, 0.1),  # the first one is long ago
        ([float(n) for n in range(50)], 50.0, LONGEST_PAUSE_S),
    ],
)
def test_the_pause_doubles_with_every_recent_end_up_to_a_bound(
    ends: list[float], now: float, pause: float
) -> None:
    assert pause_s(ends, now) == pytest.approx(pause)


def test_a_server_that_ends_at_once_for_ever_is_started_a_few_times_a_minute_at_most() -> None:
    now, ends = 0.0, [0.0]
    for _ in range(200):
        now += pause_s(ends, now)
        ends.append(now)
    last_hour = [end for end in ends if end > now - 3600.0]
    assert len(last_hour) <= 3600.0 / LONGEST_PAUSE_S + 1
