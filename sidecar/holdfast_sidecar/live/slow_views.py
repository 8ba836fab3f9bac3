"""Who is slow, as a live view shows it: a line for each rank."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.live.view import SlowView
from holdfast_sidecar.records import formatting
from holdfast_sidecar.records.steps import Slowness, SlowStanding

SHOWN = 64
"""A switch or a rack slows dozens; who is slow beyond that, `holdfast explain --slow` tells."""


def slow_of(standing: SlowStanding | None) -> list[SlowView]:
    """The dearest first."""
    slow = [] if standing is None else sorted(standing.slow, key=lambda one: -one.gain)
    return [view for one in slow for view in _views(one)][:SHOWN]


def _views(one: Slowness) -> Iterator[SlowView]:
    """A node without ranks has a line of its own."""
    for rank in one.ranks or [-1]:
        yield SlowView(
            rank=rank,
            node=one.node,
            percent=round(one.slowdown * 100, 1),
            since_step=one.since_step,
            cause=one.cause.value,
            why=formatting.why(one),
            confidence=one.confidence,
            advice=one.advice,
            gain=one.gain,
        )
