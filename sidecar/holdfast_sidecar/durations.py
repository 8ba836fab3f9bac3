"""How long something takes, as a sketch of its durations: of fixed size, and forgetful.

Buckets grow with what they hold, four to a doubling, so a quantile read from them is never too low
and at most a quarter too high, whatever the durations are. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LONGEST_US = 2**32 - 1
"""What a record's field can hold: 71 minutes."""

BUCKETS = 4 * 31

KEPT = 1024.0
"""Once so many are counted, all counts are halved: a hiccup that comes every hundred steps stays
known, and an era of other batch lengths is forgotten within some two thousand steps."""

LEAST = 0.01
"""What was halved this often is forgotten."""


@dataclass(frozen=True)
class Durations:
    """Counts of durations by bucket. Durations go in as microseconds, as records hold them."""

    counts: Mapping[int, float] = field(default_factory=dict)
    """By bucket; most are empty, and left out."""
    count: float = 0.0
    """How many are remembered."""

    def with_more(self, durations_us: Iterable[int]) -> Durations:
        """These and more; older ones weigh less once there are many."""
        counts, total = dict(self.counts), self.count
        for one_us in durations_us:
            bucket = bucket_of(one_us)
            counts[bucket] = counts.get(bucket, 0.0) + 1.0
            total += 1.0
            if total > KEPT:
                counts = {each: count / 2 for each, count in counts.items() if count > LEAST}
                total = sum(counts.values())
        return Durations(counts, total)

    def quantile_s(self, share: float) -> float:
        """So long took this share of them at most, seconds; 0 when none is known."""
        wanted = math.ceil(share * self.count)
        reached = 0.0
        for bucket in sorted(self.counts):
            reached += self.counts[bucket]
            if reached >= wanted:
                return longest_us(bucket) / 1e6
        return 0.0


def bucket_of(duration_us: int) -> int:
    """The bucket of a duration: its highest bit, and the two bits below. This is what a step costs
    the sidecar, six times."""
    if duration_us < 4:
        return max(duration_us, 0)
    if duration_us > LONGEST_US:
        return BUCKETS - 1
    bits = duration_us.bit_length()
    return 4 * (bits - 2) + (duration_us >> (bits - 3) & 3)


def longest_us(bucket: int) -> int:
    """The longest duration that goes into this bucket."""
    if bucket < 4:
        return bucket
    return ((5 + bucket % 4) << (bucket // 4 - 1)) - 1
