"""What came of a run, and whether Holdfast did harm. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REFUSED = 2


@dataclass(frozen=True)
class Timing:
    """How long a run of a timed job took, and how fast the machine was meanwhile."""

    seconds: float
    """From the end of the first step to that of the last one, on the slowest rank."""
    pieces_s: Sequence[float] = ()
    """By rank: CPU time of the same small piece of work, the mean of those in the run."""
    first_s: float = 0.0
    """Of which the first steps, in which what is done once per launch is done."""

    @property
    def pieces(self) -> float:
        """So many pieces of work could a core have done in this time."""
        return self.seconds / statistics.mean(self.pieces_s)


@dataclass(frozen=True)
class Outcome:
    """One run of an odd job, as far as two runs can be compared."""

    codes: Mapping[str, int | None]
    """Node -> the launcher's exit code; None: it never ended."""
    starts: Mapping[str, int]
    results: Mapping[str, Any]
    """Rank -> what it left; empty when it left nothing."""
    timing: Timing
    resumed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Rank -> the step at which each of its starts went on, of those that ask."""
    lost: Sequence[str] = ()
    """Files that are not ours and are not as they were."""
    seen: Sequence[str] = ()
    """Harm that whoever disturbed it saw."""
    notes: Sequence[str] = ()
    """Why it was not disturbed as it should have been."""
    tail: Sequence[str] = ()


@dataclass(frozen=True)
class Expected:
    """What a job that nothing harms comes to."""

    results: Mapping[str, Any]
    """Rank -> what it left without Holdfast."""
    starts: int = 1
    starts_anew: bool = False
    may_refuse: bool = False


def harms(expected: Expected, held: Outcome) -> list[str]:
    """What Holdfast did to the job; empty when it is as it would have been."""
    found = [*held.seen, *(f"not as it was: {name}" for name in held.lost)]
    if expected.may_refuse and is_refused(held):
        return found
    never = sorted(node for node, ended in held.codes.items() if ended is None)
    if never:
        found.append(f"never ended: {', '.join(never)}")
    wrong = {node: ended for node, ended in held.codes.items() if ended}
    if wrong:
        found.append(f"exit code {wrong} in place of 0")
    again = {rank: count for rank, count in held.starts.items() if count > expected.starts}
    if again:
        found.append(f"started again: {again}")
    other = sorted(r for r, result in expected.results.items() if held.results.get(r) != result)
    if other:
        found.append(f"another result on rank {', '.join(other)}")
    lost = [rank for rank, steps in held.resumed.items() if len(steps) > 1 and not steps[-1]]
    if lost and not expected.starts_anew:
        found.append(f"started anew after a kill: rank {', '.join(lost)}")
    return found


def is_refused(held: Outcome) -> bool:
    """Whether it was refused as bad input is: code 2, one line per node, nothing started."""
    return (
        set(held.codes.values()) == {REFUSED}
        and not any(held.starts.values())
        and len(held.tail) == len(held.codes)
    )


def not_disturbed(expected: Expected, held: Outcome) -> list[str]:
    """Why a run says nothing: what was to be done to it was not done."""
    found = list(held.notes)
    fewer = {rank: count for rank, count in held.starts.items() if count < expected.starts}
    if fewer and not (expected.may_refuse and is_refused(held)):
        found.append(f"started {fewer} in place of {expected.starts} times")
    return found
