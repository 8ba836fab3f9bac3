"""All runs: which one needs me, where the GPU hours went, which machines to distrust."""

from __future__ import annotations

from builders import fleet_runs, fleet_time
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import FLEET, TAG, Json
from builders.variables import CLUSTER, JOB, RUNS


def fleet() -> Json:
    """The dashboard to begin with."""
    title = Title(
        FLEET,
        "Holdfast / Fleet",
        "Which run needs me now, and where did the GPU hours go?",
    )
    rows = [
        Row("Which run needs me?", fleet_runs.lights() + fleet_runs.tables()),
        Row("Where did the GPU hours go?", fleet_time.panels()),
        Row("Which machines to distrust?", fleet_runs.machines()),
    ]
    return dashboard(title, [JOB, CLUSTER, RUNS], rows, tag=TAG)
