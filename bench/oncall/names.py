"""What rows and measures are called in samples and figures."""

from __future__ import annotations

SCRAPE = "scrape"
PROMETHEUS = "prometheus"
PAGE = "page"
PAGER = "page to pager"

TEXT = "text"
OPENMETRICS = "OpenMetrics"
FORMATS = (TEXT, OPENMETRICS)

SCRAPE_JOB = "holdfast-sidecar"
"""As deploy/prometheus calls it."""

RANKS = (8, 64, 256, 1024)
MOST_RANKS = RANKS[-1]

STATIC = "static"
DATA = "data"
PAINT = "paint"
"""What of the page a sample is about."""

BOARDS = (
    "holdfast-fleet",
    "holdfast-run",
    "holdfast-ranks",
    "holdfast-node",
    "holdfast-recovery",
    "holdfast-self",
)
