"""Puts a live view together: from a sidecar's picture, or from what the store holds alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from holdfast_sidecar.live import headline
from holdfast_sidecar.live.account_view import account_of
from holdfast_sidecar.live.checkpoint_view import checkpoint_of
from holdfast_sidecar.live.feeding import PHASE_NAMES
from holdfast_sidecar.live.finding_views import findings_of
from holdfast_sidecar.live.heat import HeatMemory
from holdfast_sidecar.live.incident_views import incidents_of
from holdfast_sidecar.live.node_views import nodes_of
from holdfast_sidecar.live.rank_views import own_ranks, ranks_of
from holdfast_sidecar.live.scene import Scene
from holdfast_sidecar.live.silence import PATIENCE_S
from holdfast_sidecar.live.slow_views import slow_of
from holdfast_sidecar.live.view import Heat, LiveView, RankView
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.steps import Efficiency
from holdfast_sidecar.store.protocol import View

WARNINGS = 12
"""More than this nobody reads; the table of what was found has the rest."""


def scene_of(
    picture: Picture, run: str, away_since_unix_s: float | None, patience_s: float = PATIENCE_S
) -> Scene:
    """What a sidecar knows at this tick."""
    orders, moment = picture.orders, picture.moment
    return Scene(
        run=run,
        now_unix_s=moment.now_unix_s,
        view=orders.view,
        node=moment.node,
        is_leader=orders.is_leader,
        store_up=orders.store_up,
        store_away_since_unix_s=away_since_unix_s,
        heartbeats=picture.heartbeats,
        own_ranks=own_ranks(picture),
        own_findings=picture.findings,
        reports=orders.nodes,
        picture=picture,
        patience_s=patience_s,
    )


def of_store(
    run: str, view: View, now_unix_s: float, heartbeats: Mapping[str, float] | None = None
) -> LiveView:
    """What the store alone tells of a job; of nodes that nobody watched long enough nobody knows
    whether their heartbeats move."""
    return gather(Scene(run, now_unix_s, view, heartbeats=heartbeats or {}))


def gather(scene: Scene, memory: HeatMemory | None = None) -> LiveView:
    """The view of this scene."""
    plan, ranks = scene.plan, ranks_of(scene)
    incidents = incidents_of(scene.cluster.incidents.values())
    (light, told), *more = headline.judge(scene, incidents)
    efficiency = _efficiency(scene)
    account = account_of(scene.cluster.account)
    return LiveView(
        run=scene.run,
        now_unix_s=scene.now_unix_s,
        node=scene.node,
        is_leader=scene.is_leader,
        leader_node=scene.leader_node,
        leader_address="" if scene.leader is None else scene.leader.metrics_address,
        store_up=scene.store_up,
        store_away_since_unix_s=scene.store_away_since_unix_s,
        state=_state(scene),
        light=light,
        headline=told,
        warnings=_in_brief([words for _, words in more]),
        waits=scene.waiting,
        attempt=None if plan is None else plan.attempt,
        world_size=0 if plan is None else plan.world_size,
        step=_step(ranks),
        step_s=_middle([rank.step_s for rank in ranks if rank.alive and not rank.silence]),
        tokens_per_s=_tokens_per_s(scene) or efficiency.tokens_per_s,
        mfu=efficiency.mfu,
        restarts=0 if plan is None else plan.restarts,
        paused_by="" if plan is None or plan.pause is None else plan.pause.by,
        message="" if plan is None else plan.message,
        account=dict(account.seconds),
        lost_s=account.lost_s,
        goodput=account.goodput,
        ettr=account.ettr,
        ranks=ranks,
        nodes=nodes_of(scene),
        heat=Heat() if memory is None else memory.heat(PHASE_NAMES),
        incidents=incidents,
        findings=findings_of(scene.findings),
        slow=slow_of(scene.standing),
        checkpoint=checkpoint_of(scene),
    )


def _in_brief(warnings: list[str]) -> list[str]:
    """A switch that fails is found on every node behind it."""
    left_out = len(warnings) - WARNINGS
    told = warnings[:WARNINGS]
    return [*told, f"and {left_out} more of the kind"] if left_out > 0 else told


def _state(scene: Scene) -> str:
    """As `holdfast status` says it."""
    if scene.plan is None:
        return "" if scene.view is None else "waiting"
    return "waiting" if scene.plan.state == "ended" and scene.waiting else scene.plan.state


def _step(ranks: list[RankView]) -> int | None:
    """How far the job has come: as far as the last of its ranks that are heard."""
    heard = [rank for rank in ranks if not rank.silence] or ranks
    return min((rank.step for rank in heard), default=None)


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _tokens_per_s(scene: Scene) -> float | None:
    """What all ranks tell together."""
    told = [
        rank.tokens_per_s
        for node in scene.cluster.nodes.values()
        if scene.plan is not None and node.attempt == scene.plan.attempt
        if node.node not in scene.silences
        for rank in node.ranks
        if rank.alive and rank.tokens_per_s is not None
    ]
    return sum(told) if told and not scene.is_over else None


def _efficiency(scene: Scene) -> Efficiency:
    standing = scene.standing
    known = None if standing is None else standing.efficiency
    return Efficiency() if known is None else known
