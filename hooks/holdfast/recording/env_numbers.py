"""Numbers that the user says by variables of the environment."""

from __future__ import annotations

import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)


def read_number(environ: Mapping[str, str], name: str) -> float | None:
    """What this variable says; None: nothing, or what is no number, which the rank's log tells."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        log.warning("holdfast: %s=%s is not a number like 6e15; it is left out", name, text)
        return None
