"""Remembers what a live view needs of the past, and answers `/live.json`.

Drawn when somebody asks, once a tick at most however many watch.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from holdfast_sidecar.live.feeding import told_now
from holdfast_sidecar.live.gathering import gather, scene_of
from holdfast_sidecar.live.heat import HeatMemory
from holdfast_sidecar.live.packing import pack
from holdfast_sidecar.live.silence import PATIENCE_S
from holdfast_sidecar.live.view import LiveView
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import JSON, Answer, Request

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass
class LiveTelling:
    """A route and a listener of the sidecar's server."""

    run: str
    patience_s: float = PATIENCE_S
    """After so long without a word a node is silent."""
    path: str = "/live.json"
    is_open: bool = False
    _memory: HeatMemory = field(default_factory=HeatMemory)
    _remembering: threading.Lock = field(default_factory=threading.Lock)
    """Held for moments: the loop's thread waits for it."""
    _drawing: threading.Lock = field(default_factory=threading.Lock)
    _away_since_unix_s: float | None = None
    _drawn_at_s: float = -1.0
    _drawn: bytes = b""

    def hear(self, picture: Picture) -> None:
        """Remember who was how slow; see heat.py for what that takes."""
        orders, now_unix_s = picture.orders, picture.moment.now_unix_s
        if orders.store_up:
            self._away_since_unix_s = None
        elif self._away_since_unix_s is None:
            self._away_since_unix_s = now_unix_s
        if not self._memory.wants(now_unix_s):
            return
        # Half of it is when a node is called lost: who leads next comes to it not much later, and
        # what the last leader said is no news.
        told = told_now(picture, self.patience_s / 2)
        with self._remembering:
            self._memory.follow(now_unix_s, told.ranks, told.world_size, told.step)

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """The view of the newest tick."""
        return Answer(self._json(picture), JSON, headers=HEADERS)

    def _json(self, picture: Picture | None) -> bytes:
        if picture is None:
            return pack(LiveView(run=self.run, light="grey", headline="no tick yet"))
        with self._drawing:
            if self._drawn_at_s != picture.moment.now_s:
                self._drawn = self._draw(picture)
                self._drawn_at_s = picture.moment.now_s
            return self._drawn

    def _draw(self, picture: Picture) -> bytes:
        with self._remembering:
            memory = self._memory.copied()
        scene = scene_of(picture, self.run, self._away_since_unix_s, self.patience_s)
        return pack(gather(scene, memory))
