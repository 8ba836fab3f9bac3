"""What the job could go back to, as a live view shows it."""

from __future__ import annotations

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.live.scene import Scene
from holdfast_sidecar.live.view import CheckpointView
from holdfast_sidecar.policy.checkpoint_schedule import target_s, work_out
from holdfast_sidecar.standing import newest_checkpoint


def checkpoint_of(scene: Scene) -> CheckpointView:
    """The newest state on storage and in memory, and what is on its way."""
    durable = None if scene.view is None else newest_checkpoint(scene.view)
    order = scene.cluster.checkpoint
    is_writing = order is not None and order.state in ("armed", "writing") and not scene.is_over
    return CheckpointView(
        durable_step=None if durable is None else durable.step,
        durable_unix_s=None if durable is None else durable.at_unix_s,
        snapshot_step=_snapshot_step(scene),
        interval_s=_interval_s(scene),
        writing_step=order.step if order is not None and is_writing else None,
        writing_share=_share(scene, order.identifier) if order is not None and is_writing else None,
    )


def _snapshot_step(scene: Scene) -> int | None:
    """The newest that any node's ranks know to exist on all ranks."""
    plan = scene.plan
    newest = [
        report.snapshot.newest
        for report in scene.cluster.nodes.values()
        if report.snapshot is not None
        and plan is not None
        and report.snapshot.attempt == plan.attempt
    ]
    known = max(newest, default=-1)
    return known if known >= 0 else None


def _interval_s(scene: Scene) -> float | None:
    settings = _settings(scene)
    if settings is None or not settings.dir or scene.is_over:
        return None
    return target_s(work_out(scene.cluster, settings, scene.now_unix_s), settings)


def _settings(scene: Scene) -> CheckpointSettings | None:
    """The leader's, as far as it is heard; the node's own may be others."""
    if scene.leader is not None and scene.leader.checkpoint is not None:
        return scene.leader.checkpoint
    return None if scene.picture is None else scene.picture.checkpoint_settings


def _share(scene: Scene, identifier: str) -> float | None:
    """Of all files those that are written, as far as the nodes tell."""
    parts = [report.saved for report in scene.cluster.nodes.values()]
    told = [part for part in parts if part is not None and part.identifier == identifier]
    total = sum(part.total_bytes for part in told)
    return sum(part.done_bytes for part in told) / total if total else None
