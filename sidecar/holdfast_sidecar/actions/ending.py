"""Ends a hung rank of this node. Whether it may be ended is for `decisions.warrant`."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable

from holdfast_sidecar.pages import RankPage
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)


def end_culprits(plan: Plan, pages: Iterable[RankPage]) -> bool:
    """Kill the plan's culprits among these pages; whether any was still there.

    Through the handle opened when the page was first seen, and only in the plan's own attempt: a
    sidecar that slept between check and act harms nobody.
    """
    ended = False
    for held in pages:
        identity = held.identity
        if identity.attempt != plan.attempt or identity.rank not in plan.culprit_ranks:
            continue
        if not held.is_gone() and held.send(signal.SIGKILL):
            logger.warning(
                "ended rank %d (process %d) for incident %s",
                identity.rank,
                identity.pid,
                plan.incident,
            )
            ended = True
    return ended
