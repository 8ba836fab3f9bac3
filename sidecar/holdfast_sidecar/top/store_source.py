"""A job's view from its store alone, where no sidecar can be reached from here: who is slow when,
only sidecars know, and whose heartbeat moves is known only after a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.controller.fence import HeartbeatTimes
from holdfast_sidecar.export.live.build import of_store
from holdfast_sidecar.export.live.packing import pack, unpack
from holdfast_sidecar.export.live.scene import PATIENCE_S
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.store.protocol import Store, StoreUnavailable, View
from holdfast_sidecar.top.sources import Away


@dataclass
class StoreSource:
    """Reads everything about the job, every time."""

    job: str
    store: Store
    where: str
    """The server, without secrets."""
    clock: Callable[[], float] = time.time
    _times: HeartbeatTimes = field(default_factory=HeartbeatTimes)
    _began_unix_s: float | None = None

    @property
    def name(self) -> str:
        """Who is asked."""
        return f"Redis at {self.where}"

    def read(self) -> LiveView:
        """What the store holds now."""
        try:
            held = self.store.read()
        except StoreUnavailable as error:
            raise Away(f"Redis at {self.where} does not answer: {error}") from None
        now_unix_s = self.clock()
        view = of_store(self.job, held, now_unix_s, self._heartbeats(held, now_unix_s))
        # As a sidecar would tell it: without figures that are no numbers, which JSON can't say.
        return unpack(pack(view)) or view

    def _heartbeats(self, held: View, now_unix_s: float) -> dict[str, float]:
        """Those that were seen to move, or waited for in vain: at first sight all look alike."""
        if self._began_unix_s is None:
            self._began_unix_s = now_unix_s
        seen, began_unix_s = self._times.seen(held, now_unix_s), self._began_unix_s
        was_patient = now_unix_s - began_unix_s >= PATIENCE_S
        return {node: at for node, at in seen.items() if at > began_unix_s or was_patient}
