"""Imported by multiprocessing's fork server alone, as one of the modules that it loads ahead.

If the server died of a scheduler's SIGTERM, the rank would take all workers it forked for dead.
"""

from __future__ import annotations

from holdfast.patches.workers import survive

survive()
