"""The leader's hand for snapshots: writes how often they shall be taken when that has changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.checkpoint_schedule import decide_rhythm
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import SnapshotOrder
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotKeeping:
    """What a leading sidecar does about snapshots; asked once per exchange of a running plan."""

    store: Store
    settings: Settings

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan) -> None:
        """Write the order that shall stand, unless it does already."""
        order = decide_rhythm(
            self.settings.snapshot,
            plan,
            cluster.nodes,
            cluster.ranks(plan).values(),
            cluster.snapshot,
            lease.epoch,
        )
        if order is None:
            return
        if self.store.order(lease, Section.SNAPSHOT, CURRENT, encode(order), cluster.snapshot_text):
            log.info("%s", _say(order))


def _say(order: SnapshotOrder) -> str:
    if order.every_steps == 0:
        return f"no snapshots: {order.reason}"
    return f"a snapshot every {f'{order.every_steps} steps' if order.every_steps > 1 else 'step'}"
