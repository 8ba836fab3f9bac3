"""A node's health: GPUs, fabric, host."""

from __future__ import annotations

from builders import node_fabric, node_gpus, node_host, node_lights
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import NODE, Json
from builders.variables import CLUSTER, JOB, NODES, RUNS


def node() -> Json:
    """What is wrong first; then each kind of part, folded below the GPUs."""
    title = Title(NODE, "Holdfast / Node health", "Is a machine ill: GPU, fabric or host?")
    rows = [
        Row("Is a machine ill?", node_lights.panels()),
        Row("GPUs", node_gpus.panels()),
        Row("Fabric and network", node_fabric.panels(), is_folded=True),
        Row("Host", node_host.panels(), is_folded=True),
    ]
    return dashboard(title, [JOB, CLUSTER, RUNS, NODES], rows)
