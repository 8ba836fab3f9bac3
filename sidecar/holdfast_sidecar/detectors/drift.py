"""Links whose errors grow: worn optics, a bent fibre, a dying port, before the link is lost.

Out-of-sequence packets are not among them: adaptive routing makes them on healthy fabrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_sidecar.readings.fabric import FabricReading
from holdfast_sidecar.readings.trail import Trail
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind


@dataclass(frozen=True)
class Limit:
    """How far an error counter may grow within ten minutes, and in how many of them."""

    most: int
    minutes: int
    meaning: str


LIMITS = {
    # A bit error rate of 1e-12, the old limit of ibdiagnet, is 60 in ten minutes at 100 Gb/s. With
    # forward error correction what is counted is left after it, and a healthy link counts none.
    "symbol_error": Limit(60, 2, "bits are lost on the wire"),
    # A retraining stops traffic for milliseconds; one may be a switch that was rebooted.
    "link_error_recovery": Limit(1, 2, "the link is trained anew again and again"),
    "local_link_integrity_errors": Limit(10, 2, "packets arrive broken"),
    "port_rcv_errors": Limit(10, 2, "packets arrive broken"),
    # Flow control makes it impossible on a sound fabric: NVSentinel counts it as fatal at once.
    "excessive_buffer_overrun_errors": Limit(0, 1, "flow control fails"),
    # Each is a queue pair that waited (4 s by NCCL's default) and tried again; seven end it. A
    # node that dies elsewhere makes a burst of them on all its peers: hence two minutes.
    "local_ack_timeout_err": Limit(10, 2, "what was sent is not acknowledged in time"),
    # As above, by EFA's own transport.
    "retrans_timeout_events": Limit(10, 2, "what was sent is not acknowledged in time"),
}
"""Counter -> what is too much. Growth in two separate minutes keeps the burst of one flap out."""


def find_drifting_errors(fabric: FabricReading | None, moment: Moment) -> Iterator[Finding]:
    """Ports of this node whose errors grow."""
    if fabric is None:
        return
    for port, trails in sorted(fabric.grown.items()):
        told = [text for name, trail in trails.items() if (text := _told(name, trail))]
        if told:
            yield Finding(
                Kind.LINK_DEGRADED,
                moment.node,
                moment.now_unix_s,
                0.8,
                evidence=[f"{port}: {text}" for text in told],
                what=f"errors of {port}",
            )


def _told(name: str, trail: Trail) -> str:
    limit = LIMITS.get(name)
    if limit is None or trail.growth <= limit.most or trail.minutes_of_growth < limit.minutes:
        return ""
    return f"{name} grew by {trail.growth} in {trail.length_s:.0f} s: {limit.meaning}"
