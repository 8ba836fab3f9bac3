"""When a sidecar may look and report less often: nobody waits for what it would say. Pure.

What wakes it (a death, a silence that is over, an order, a request) still does so at once.
"""

from __future__ import annotations

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.settings import OVERSLEPT_S

CALM = 1.6
"""Times the usual pause. On a node whose ranks use every core the sidecar's looks are what the job
feels most of it. Twice would save more, but then a rank's step could be older when it is read than
the margin of a checkpoint (`checkpointing.margin_s`) allows for."""


def is_alone(cluster: Cluster, node: str) -> bool:
    """Whether the job never has another node than this one, as its launcher says."""
    agent = cluster.agents.get(node)
    return agent is not None and agent.max_nodes == 1


def is_calm(cluster: Cluster, leader: str) -> bool:
    """Whether the job runs, and never has another node than this leader's."""
    is_running = cluster.plan is not None and cluster.plan.state == "running"
    return is_running and is_alone(cluster, leader)


def calm_s(usual_s: float) -> float:
    """The pause of a sidecar that is calm; never so long that it takes itself for having slept."""
    return max(usual_s, min(CALM * usual_s, OVERSLEPT_S / 2))
