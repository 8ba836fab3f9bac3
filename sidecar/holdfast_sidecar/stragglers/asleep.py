"""Whether a slow rank computed meanwhile or slept: by the CPU time of its process. Pure.

A rank with a GPU says nothing by that: its process may rest while its device works.
"""

from __future__ import annotations

from holdfast_sidecar.stragglers.signals import Signals

MOST = 0.5
"""Of its excess: what was not on a CPU for less than half of it may have been computed."""

COMPUTES = 0.8
"""Of their own time: peers that are on a CPU for so much of it compute, and their CPU time is what
the work needs. Of peers that sleep too, it may be what their libraries spin while they wait."""


def slept_us(own: Signals, peers: Signals | None, excess_us: float) -> float:
    """How much of its excess its process was on no CPU, at least, microseconds of a step; 0: none,
    or its CPU time is not known."""
    if own.cpu <= 0:
        return 0.0
    on_cpu_us = own.cpu * own.total
    usual_us = 0.0 if peers is None else peers.cpu * peers.total
    slept = excess_us - on_cpu_us  # if all its CPU time lay in the excess
    if peers is not None and usual_us >= COMPUTES * _own_us(peers):
        off_cpu_us = max(0.0, _own_us(own) - on_cpu_us)
        slept = max(slept, min(off_cpu_us, excess_us - max(0.0, on_cpu_us - usual_us)))
    return max(0.0, slept)


def is_asleep(own: Signals, peers: Signals | None, excess_us: float) -> bool:
    """Whether it was on no CPU for most of what it takes longer."""
    return slept_us(own, peers, excess_us) > MOST * excess_us


def told(own: Signals) -> str:
    """As evidence."""
    return (
        f"its process used {own.cpu:.0%} of a CPU meanwhile: it slept or waited for something"
        " outside, it did not compute"
    )


def _own_us(signals: Signals) -> float:
    parts = (signals.data, signals.transfer, signals.forward, signals.backward)
    return sum(parts) + signals.optimizer + signals.other
