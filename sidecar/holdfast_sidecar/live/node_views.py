"""Nodes as a live view shows them: those that have a place, and those that would take one."""

from __future__ import annotations

from collections import Counter

from holdfast_sidecar.live.scene import Scene
from holdfast_sidecar.live.silence import SILENT
from holdfast_sidecar.live.view import NodeView
from holdfast_sidecar.policy.quarantine import is_kept_out
from holdfast_sidecar.records.findings import Kind

GONE = {Kind.NODE_LOST: "lost", Kind.SIDECAR_LOST: "unattended"}
"""What the leader finds of nodes that are not heard any more -> the state of such a node."""


def nodes_of(scene: Scene) -> list[NodeView]:
    """Members first, by their place; then the others by name."""
    cluster, plan = scene.cluster, scene.plan
    places = {} if plan is None else {one.node: one.node_rank for one in plan.members}
    names = {*places, *cluster.agents, *cluster.nodes}
    found = Counter(finding.node for finding in scene.findings)
    gone = {finding.node: GONE[finding.kind] for finding in scene.findings if finding.kind in GONE}
    return [
        NodeView(
            node=name,
            is_leader=name == scene.leader_node,
            heartbeat_unix_s=_heard_unix_s(scene, name),
            state=gone.get(name) or _state(scene, name),
            ranks=_ranks(scene, name),
            findings=found[name],
        )
        for name in sorted(names, key=lambda name: (places.get(name, len(names)), name))
    ]


def _heard_unix_s(scene: Scene, name: str) -> float | None:
    """Who tells is heard by itself, though its beats come back by way of Redis alone."""
    is_own = name == scene.node and not scene.store_up
    return scene.now_unix_s if is_own else scene.heartbeats.get(name)


def _state(scene: Scene, name: str) -> str:
    plan, agent = scene.plan, scene.cluster.agents.get(name)
    is_member = plan is not None and any(one.node == name for one in plan.members)
    if agent is None:
        return "attached" if is_member else ""
    if agent.state == "left":
        return "left"
    if is_member and name in scene.silences and scene.silences[name].kind == SILENT:
        return SILENT
    if is_member:
        return "member"
    outside = [] if plan is None else plan.outside
    return "outside" if is_kept_out(agent, outside) else "spare"


def _ranks(scene: Scene, name: str) -> list[int]:
    """By the plan; of a job that somebody else launched, those that the node tells of."""
    plan, report = scene.plan, scene.cluster.nodes.get(name)
    if scene.cluster.plan is None:
        return [] if report is None else sorted(rank.rank for rank in report.ranks)
    members = [] if plan is None else plan.members
    return next((list(one.ranks) for one in members if one.node == name), [])
