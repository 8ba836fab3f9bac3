"""Ranks, and how processes ended, in words, for evidence and stories; names in order. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

MOST_PARTS = 6
"""Beyond this a list is cut: of a thousand ranks nobody reads the numbers."""


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`; `no rank` of none."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs = [[numbers[0], numbers[0]]]
    for number in numbers[1:]:
        if number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    if len(parts) > MOST_PARTS:
        parts = [*parts[:MOST_PARTS], f"… ({len(numbers)} in all)"]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(parts)}"


def who_has(ranks: Iterable[int]) -> str:
    """`rank 3 has`, `ranks 0-2 have`."""
    numbers = set(ranks)
    return f"{name_ranks(numbers)} {'has' if len(numbers) == 1 else 'have'}"


def who_wait(ranks: Iterable[int]) -> str:
    """`rank 3 waits`, `ranks 0-2 wait`."""
    numbers = set(ranks)
    return f"{name_ranks(numbers)} wait{'s' * (len(numbers) == 1)}"


def name_signal(number: int) -> str:
    """`SIGKILL`; `signal 42` of one that has no name here, as most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(exit_code: int) -> str:
    """`exited with code 3`; `was ended by SIGKILL` of a negative one, as `subprocess` has it."""
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"was ended by {name_signal(-exit_code)}"


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that puts host2 before host10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
