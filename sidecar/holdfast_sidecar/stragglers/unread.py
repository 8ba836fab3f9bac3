"""Reads only those lines that were not read before: reports repeat each rank's latest few."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_sidecar.records.steps import StepLine, parse


class Unread:
    """Of one attempt, whose steps are numbered anew."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        """Rank, as it is spelled -> the last line that was read of it."""

    def take(self, texts: Sequence[str]) -> list[StepLine]:
        """One rank's lines, oldest first as they stand in its report; those that are new."""
        if not texts:
            return []
        rank = texts[0].partition(" ")[0]
        last = self._last.get(rank)
        if texts[-1] == last:
            return []
        self._last[rank] = texts[-1]
        new = texts[texts.index(last) + 1 :] if last in texts else texts
        return [line for line in map(parse, new) if line is not None]
