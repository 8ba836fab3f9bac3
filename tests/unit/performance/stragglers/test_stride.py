from __future__ import annotations

import pytest

from holdfast_sidecar.performance.stragglers.windows import LONGEST, next_stride, stride_for


@pytest.mark.parametrize(
    ("step_s", "ranks", "stride"),
    [
        (0.1, 8, 1),
        (0.099, 8, 2),
        (30.0, 8, 1),
        (0.001, 8, 128),
        (0.3, 4096, 4),
        (1.0, 4096, 1),
        (0.3, 8192, 8),
        (0.0, 8, LONGEST),
    ],
)
def test_a_block_is_as_short_as_telling_it_allows(step_s: float, ranks: int, stride: int) -> None:
    assert stride_for(step_s, ranks) == stride


def test_a_stride_changes_only_with_a_pace_that_is_four_times_another() -> None:
    assert next_stride(0, 0.02, 8) == 8
    for step_s in (0.2, 0.1, 0.03, 0.01, 0.0065):
        kept = next_stride(8, step_s, 8)
        assert (kept == 8) == (0.0125 / 2 < step_s < 0.05), step_s
    assert next_stride(8, 0.2, 8) == 1
    assert next_stride(8, 0.003, 8) == 64
