"""What rows are called in samples and figures."""

from __future__ import annotations

DETECTION = "detection"
SMALL = "small groups"
HEALTHY = "healthy"
AGGREGATE = "aggregate"
