"""Batches that are passed over because numbers went wrong on them: how many, before which step.

Every rank is told the same. What was passed over before a checkpoint is part of its position in
the data, so only what comes at or after the step that is resumed from is still to be done.
"""

from __future__ import annotations

import json
import logging

from holdfast.contract import environment

log = logging.getLogger(__name__)


def parse_skips(text: str, first: int) -> dict[int, int]:
    """Step -> batches to pass over before its own; of steps from `first` on.

    What can't be read is left out: training on a bad batch again beats not training.
    """
    try:
        found = [(int(item["step"]), int(item["count"])) for item in json.loads(text or "[]")]
    except (ValueError, KeyError, TypeError) as error:
        log.warning("holdfast: %s is no list of batches: %s", environment.SKIPS, error)
        return {}
    return {step: count for step, count in found if step >= first and count > 0}
