"""What the rows of hangs, and of jobs without any, are called."""

from __future__ import annotations

HANGS = "hangs"
QUIET = "quiet"

REAL = "real"
SIMULATED = "simulated"
