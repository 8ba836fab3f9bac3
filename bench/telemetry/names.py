"""What rows and measures are called in samples and figures."""

from __future__ import annotations

COST = "cost"
SCRAPE = "scrape"
XID = "xid"
WEDGED = "wedged"
STORIES = "stories"

ALONE = "no ranks"
WITH_RANKS = "8 ranks"

GPUS = 8
PORTS = 8
