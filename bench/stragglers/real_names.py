"""What the rows of real jobs are called in samples and figures."""

from __future__ import annotations

REAL = "real"
REAL_LINK = "real link"
REAL_HEALTHY = "real healthy"
