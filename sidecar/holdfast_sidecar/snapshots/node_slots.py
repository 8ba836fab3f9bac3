"""The loop's view of this node's slots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.coordination.reports import SnapshotReport
from holdfast_sidecar.local_state import Orders
from holdfast_sidecar.observation import RankLook
from holdfast_sidecar.settings import Settings


@dataclass
class NodeSlots:
    """Asked at every tick; never waits."""

    shm: Path
    settings: Settings
    is_pressed: bool = False

    def follow(self, orders: Orders, looks: list[RankLook], now_s: float) -> SnapshotReport | None:
        """What this node has now."""
        return None
