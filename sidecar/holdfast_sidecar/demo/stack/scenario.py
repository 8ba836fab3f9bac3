"""What happens to the job for which somebody is called, and how long each part may take."""

from __future__ import annotations

JOB = "demo-stack"
NODES = ("a", "b")
"""Both train, and there is no spare: what heals by itself pages nobody."""
DOOMED = "b"
SAVE_EVERY_STEPS = 500
"""A page for stale checkpoints would be one too many: some are made every minute or so."""

BRISK = 5.0
"""By how much --brisk shortens the waits. Ten would do on a machine of its own; here a scrape, an
evaluation or a restart may take a second that is not divided, and symptoms must not be told before
their cause."""

KNOWN_WITHIN_S = 120.0
"""Until Prometheus has scraped both nodes and evaluated the rules, and the watchdog was heard: a
service discovery, a scrape and two evaluations, 75 s at most with the shipped waits."""
PAGED_WITHIN_S = 180.0
"""Some 80 s with the shipped waits; it has to be less than 120 s, see docs/alerts.md."""
RESOLVED_WITHIN_S = 360.0
"""The shipped keep_firing_for and group_interval are a minute and a half; the rest is the restart,
and for a slow machine."""
