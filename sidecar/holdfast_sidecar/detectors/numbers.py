"""A loss that is not a number: NaN or infinity in what a rank reported."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.page import Word
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Moment, Ranks


def find_nonfinite(ranks: Ranks, moment: Moment) -> Iterator[Finding]:
    """One finding per local rank that reported NaN or Inf in this attempt."""
    for history in ranks.local.values():
        look = history.look
        seen = look.words[Word.NONFINITE]
        if seen:
            yield Finding(
                kind=Kind.NONFINITE,
                node=moment.node,
                since_unix_s=moment.now_unix_s,
                confidence=0.99,
                ranks=[look.rank],
                evidence=[f"{seen} losses so far were NaN or Inf; newest step {look.step}"],
            )
