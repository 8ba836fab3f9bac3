"""Checkpoints, recovery and goodput: what failures cost, in time, in work and in money."""

from __future__ import annotations

from builders import recovery_checkpoints, recovery_costs, recovery_goodput, recovery_restarts
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import RECOVERY, Json
from builders.variables import CLUSTER, JOB, RUNS


def recovery() -> Json:
    """How well, what a failure costs, what protects from it."""
    title = Title(
        RECOVERY,
        "Holdfast / Checkpoints, recovery, goodput",
        "What do failures cost, where does a recovery's time go, and how much work is at risk?",
    )
    rows = [
        Row("How well does it do?", recovery_goodput.panels()),
        Row("Where does a recovery's time go?", recovery_restarts.panels()),
        Row("What was lost, to whom?", recovery_costs.panels()),
        Row("What is at risk?", recovery_checkpoints.panels()),
    ]
    return dashboard(title, [JOB, CLUSTER, RUNS], rows)
