"""Whether a job that is to be restarted for a fault can be saved before. Pure."""

from __future__ import annotations

from holdfast_sidecar.decisions import checkpointing
from holdfast_sidecar.decisions.choosing import ABOUT_NUMBERS
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.warrant import HANGS
from holdfast_sidecar.records.findings import Kind, Remedy
from holdfast_sidecar.records.plan import Incident, Plan


def can_be_saved(incident: Incident, cluster: Cluster, plan: Plan) -> bool:
    """Whether all ranks will come to the step at which they save, with something worth it:
    who hangs does not, whose GPU is gone can't read its state, and nobody wants wrong numbers."""
    leaders = (node.checkpoint for node in cluster.nodes.values() if node.checkpoint is not None)
    if not any(settings.dir for settings in leaders):
        return False
    if incident.cause in HANGS | ABOUT_NUMBERS or _is_gone(incident, cluster):
        return False
    return not checkpointing.obstacle(plan, cluster.ranks(plan))


def _is_gone(incident: Incident, cluster: Cluster) -> bool:
    """What needs a reboot mostly fell off the bus."""
    node = cluster.nodes.get(incident.culprit_node)
    findings = [] if node is None else node.findings
    is_lost = any(f.kind is Kind.GPU_LOST and f.gpu == incident.gpu for f in findings)
    return bool(incident.gpu) and (is_lost or incident.remedy == Remedy.REBOOT_NODE.value)
