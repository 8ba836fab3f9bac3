from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast_sidecar.incidents.first_error import ERRORS_KEPT, LogSource, find_errors, read_time

NOW = datetime(2026, 1, 2, tzinfo=UTC).timestamp()

LOG = """\
step 1 loss 0.5
2026-01-01T10:00:00.250Z ERROR can't reach the tracker, trying again
Traceback (most recent call last):
  File "/job/train.py", line 41, in load_batch
ValueError: bad sample 17
terminate called after throwing an instance of 'c10::Error'
"""


def test_the_lines_that_say_that_something_broke_are_found_in_order() -> None:
    found = find_errors(LOG, LogSource(rank=3), NOW)
    assert [(one.rank, one.text.split()[0], one.is_grave) for one in found] == [
        (3, "2026-01-01T10:00:00.250Z", False),
        (3, "ValueError:", False),
        (3, "terminate", True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "loss 0.5, error rate 0.1, no errors so far",
        "catching KeyError in load()",
        "see RuntimeError docs",
        "INFO errors=0 terminated=False",
        "validation error: 0.25",
    ],
)
def test_everyday_lines_are_no_errors(line: str) -> None:
    assert find_errors(line, LogSource(rank=0), NOW) == []


def test_in_a_file_of_several_ranks_prefixes_tell_whose_a_line_is() -> None:
    text = (
        "[rank3]: ValueError: bad sample\n"
        "[default1]:CUDA error: an illegal memory access was encountered\n"
        "[default0]:[rank2]: RuntimeError: x\n"
        "Fatal Python error: Segmentation fault\n"
    )
    found = find_errors(text, LogSource(ranks={0: 4, 1: 5}), NOW)
    assert [(one.rank, one.is_grave) for one in found] == [
        (3, False),
        (5, True),
        (2, False),
        (-1, True),
    ]


def test_of_each_rank_only_the_first_errors_are_kept() -> None:
    text = "".join(f"[rank0]: ValueError: {n}\n" for n in range(20)) + "[rank1]: OSError: x\n"
    found = find_errors(text, LogSource(), NOW)
    assert [one.rank for one in found] == [0] * ERRORS_KEPT + [1]
    assert found[0].text == "ValueError: 0"


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2026-01-01T10:00:00.250Z x", datetime(2026, 1, 1, 10, 0, 0, 250000, UTC)),
        ("[2026-01-01 12:00:00,5+0200] x", datetime(2026, 1, 1, 10, 0, 0, 500000, UTC)),
        ("2026-01-01 10:00:00 x", datetime(2026, 1, 1, 10)),
        ("E1231 10:00:00.123456 99 x.cc:1] y", datetime(2025, 12, 31, 10, 0, 0, 123456)),
        ("W0101 10:00:00.000001 99 x.cc:1] y", datetime(2026, 1, 1, 10, 0, 0, 1)),
    ],
)
def test_the_time_of_a_line_is_read_as_logs_write_it(line: str, at: datetime) -> None:
    assert read_time(line, NOW) == at.timestamp()


@pytest.mark.parametrize("line", ["step 1", "2026-13-01 10:00:00 x", "E0230 10:00:00.0 y"])
def test_what_is_no_time_is_none(line: str) -> None:
    assert read_time(line, NOW) is None
