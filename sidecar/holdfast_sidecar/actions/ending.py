"""Ends a hung rank of this node. Whether it may be ended is for `decisions.warrant`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from holdfast.ending_processes import signal_handle
from holdfast.permit import NotPermitted, Permit
from holdfast_sidecar.pages import RankPage

logger = logging.getLogger(__name__)


PermitFor = Callable[[int, int, int | None], Permit]
"""Attempt, rank and open process -> a permit to end it; raises NotPermitted."""


def end_culprits(permit_for: PermitFor, pages: Iterable[RankPage]) -> bool:
    """Kill the plan's culprits among these pages; whether any was still there.

    Through the handle opened when the page was first seen.
    """
    ended = False
    for held in pages:
        who = held.identity
        try:
            permit = permit_for(who.attempt, who.rank, held.pidfd)
        except NotPermitted:
            continue
        if held.is_gone():
            continue
        try:
            signal_handle(permit)
        except ProcessLookupError:
            continue
        logger.warning("ended rank %d (process %d): %s", who.rank, who.pid, permit.proof)
        ended = True
    return ended
