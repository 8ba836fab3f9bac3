"""A job's view from its store alone, where no sidecar can be reached from here: who is slow when,
and whose heartbeat moves, only sidecars know."""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast_sidecar.coordination.store import Store, StoreUnavailable
from holdfast_sidecar.live.gathering import of_store
from holdfast_sidecar.live.packing import pack, unpack
from holdfast_sidecar.live.view import LiveView
from holdfast_sidecar.top.sources import Away


@dataclass
class StoreSource:
    """Reads everything about the job, every time."""

    job: str
    store: Store
    where: str
    """The server, without secrets."""

    @property
    def name(self) -> str:
        """Who is asked."""
        return f"Redis at {self.where}"

    def read(self) -> LiveView:
        """What the store holds now."""
        try:
            view = of_store(self.job, self.store.read(), time.time())
        except StoreUnavailable as error:
            raise Away(f"Redis at {self.where} does not answer: {error}") from None
        # As a sidecar would tell it: without figures that are no numbers, which JSON can't say.
        return unpack(pack(view)) or view
