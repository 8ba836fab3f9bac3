"""What Holdfast itself recorded, read from its Redis."""

from __future__ import annotations

from bench.launch.redis_server import RedisServer
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.protocol import Keys, Section


def read_detected_unix(server: RedisServer, job: str, after_unix: float) -> float | None:
    """When the first incident after this time was detected; None when there is none."""
    texts = server.client().hvals(Keys(job).section(Section.INCIDENTS))
    found = [decode(Incident, str(text)) for text in texts]
    detected = [i.detected_unix_s for i in found if i is not None]
    return min((at_unix for at_unix in detected if at_unix >= after_unix), default=None)


def read_is_joining(server: RedisServer, job: str, node: str) -> bool:
    """Whether this node waits for a place."""
    text = server.client().hget(Keys(job).section(Section.AGENTS), node)
    report = None if text is None else decode(AgentReport, str(text))
    return report is not None and report.state == "joining"
