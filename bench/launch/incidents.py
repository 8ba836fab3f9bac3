"""What Holdfast itself recorded about a fault."""

from __future__ import annotations

import redis

from bench.launch.redis_server import RedisServer
from holdfast_sidecar.coordination.keys import Keys, Section
from holdfast_sidecar.coordination.reports import Incident, decode


def read_detected_unix(server: RedisServer, job: str, after_unix: float) -> float | None:
    """When the first incident after this time was detected; None when there is none."""
    client: redis.Redis = server.client()
    texts = client.hvals(Keys(job).section(Section.INCIDENTS))
    found = [decode(Incident, str(text)) for text in texts]
    incidents = [incident for incident in found if incident is not None]
    detected = [i.detected_unix_s for i in incidents if i.detected_unix_s >= after_unix]
    return min(detected, default=None)
