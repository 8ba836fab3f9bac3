from __future__ import annotations

import pytest

from holdfast_sidecar.cli.tui.text import amount, counted, number, share, short_span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3.0, "0ms"),
        (0.0123, "12ms"),
        (0.9999, "1.00s"),
        (1.214, "1.21s"),
        (12.34, "12.3s"),
        (120.0, "120s"),
        (3000.0, "50m"),
        (9000.0, "2h"),
        (200_000.0, "2d"),
        (1e9, "11574d"),
    ],
)
def test_a_length_of_time_in_few_columns(seconds: float | None, text: str) -> None:
    assert short_span(seconds) == text
    assert len(text) <= 6


def test_other_figures() -> None:
    assert (number(None), number(12_345)) == ("-", "12,345")
    assert [amount(count) for count in (950, 12_345, 4.5e6, 8e10)] == [
        "950",
        "12.3k",
        "4.5M",
        "80.0G",
    ]
    assert (share(None), share(0.931), share(0.931, 1)) == ("-", "93%", "93.1%")
    assert (counted(1, "rank"), counted(1024, "rank")) == ("1 rank", "1,024 ranks")
