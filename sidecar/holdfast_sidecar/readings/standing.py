"""Where a rank says it stands in the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """As its report carries it: see `records.rank`."""

    layout: str = ""
    groups: tuple[str, ...] = ()


NOWHERE = Standing()
"""It says nothing."""
