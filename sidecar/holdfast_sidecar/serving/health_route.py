"""/healthz: whether this sidecar is well, for whoever restarts it; nothing about the job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from holdfast_sidecar.metrics.drawing import without_former_ranks
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import JSON, Answer, Request

STALE_AFTER_S = 10.0
"""A loop that has not ticked for this long (some twenty ticks) is not well."""


@dataclass(frozen=True)
class HealthRoute:
    """Open to everybody, as a kubelet shows no token: those without one hear `ok` and no more."""

    path: str = "/healthz"
    is_open: bool = True
    clock: Callable[[], float] = time.monotonic

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """200 when it is well, else 503."""
        told = health(picture, self.clock())
        status = HTTPStatus.OK if told["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
        shown = told if request.is_known else {"ok": told["ok"]}
        return Answer(json.dumps(shown).encode(), JSON, status)


def health(picture: Picture | None, now_s: float) -> dict[str, Any]:
    """What there is to say of this sidecar. `now_s` is monotonic, as the picture's moment is."""
    if picture is None:
        return {"ok": False, "why": "no tick yet"}
    age_s = now_s - picture.moment.now_s
    return {
        "ok": age_s < STALE_AFTER_S,
        "store_up": picture.orders.store_up,
        "leader": picture.orders.lease.candidate,
        "is_leader": picture.orders.is_leader,
        "attempt": picture.ranks.attempt,
        "ranks": len(without_former_ranks(picture).ranks.local),
        "findings": [finding.kind.value for finding in picture.findings],
        "last_tick_age_s": round(age_s, 3),
    }
