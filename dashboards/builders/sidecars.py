"""Holdfast itself: is what watches the runs well, and what does it cost?"""

from __future__ import annotations

from builders import sidecar_lights, sidecar_work
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import SELF, Json
from builders.variables import CLUSTER, JOB, NODES, RUNS


def sidecars() -> Json:
    """Who watches the watcher."""
    title = Title(
        SELF, "Holdfast / Holdfast itself", "Is the monitoring well, and what does it cost?"
    )
    rows = [
        Row("Is the monitoring well?", sidecar_lights.panels()),
        Row("What it does, and what that costs", sidecar_work.panels()),
    ]
    return dashboard(title, [JOB, CLUSTER, RUNS, NODES], rows)
