"""Before a sidecar begins: whether a living one watches this node already, wherever it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.linux.files import read_boot
from holdfast_sidecar.policy.cluster import COUNTED_BEATS, Heartbeats
from holdfast_sidecar.policy.election import (
    HANDOVER_S,
    Namesake,
    NamesakeWatch,
    refusal,
    who_watches,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section, Store, StoreUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Which node of which job is watched, and under which settings."""

    job: str
    node: str
    places: Places
    settings: Settings
    launcher_pid: int = 0
    attached: bool = False
    """Somebody else launched the ranks; see `holdfast attach`."""
    memory: SlotMemory = NAMED
    """What snapshots are kept in."""


def await_place(
    store: Store,
    site: Site,
    predecessor: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> str:
    """The incarnation whose place may be taken, once nobody watches this node: at once where the
    last one is known to be gone, or the store is away (the coordinator looks again). BadInput when
    somebody watches it, and stays."""
    beat_s, timeout_s = site.settings.sidecar.heartbeat_s, site.settings.sidecar.node_timeout_s
    heartbeats = Heartbeats(counted_s=COUNTED_BEATS * beat_s, late_after_s=timeout_s)
    watch, boot, is_told = NamesakeWatch(heartbeats, timeout_s), read_boot(), False
    while True:
        asked_at = clock()
        try:
            view = store.read((Section.NODES,))
        except StoreUnavailable:
            return predecessor
        other = decode(NodeReport, view.section(Section.NODES).get(site.node, ""))
        if other is None or other.incarnation == predecessor:
            return predecessor
        judged = watch.judge(other, view.server, asked_at, clock())
        if judged is Namesake.GONE:
            return other.incarnation
        if judged is Namesake.STAYS:
            raise BadInput(refusal(other, site.job, boot))
        if watch.has_moved and not is_told:
            who = who_watches(other, site.job, boot)
            log.warning("%s: waiting up to %g s, in case it is leaving", who, HANDOVER_S)
            is_told = True
        sleep(beat_s / 2)
