"""A link that is gone: a physical interface that had carrier and lost it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Moment
from holdfast_sidecar.readings.network import NetworkReading


def find_lost_links(network: NetworkReading | None, moment: Moment) -> Iterator[Finding]:
    """Only links that were lost since the interface came up: an unplugged spare port is normal."""
    if network is None:
        return
    for link in network.interfaces.values():
        if link.is_physical and link.has_carrier is False and (link.carrier_losses or 0) > 0:
            yield Finding(
                kind=Kind.LINK_DOWN,
                node=moment.node,
                since_unix_s=moment.now_unix_s,
                confidence=0.9,
                evidence=[f"{link.name} has no carrier, lost {link.carrier_losses} times so far"],
                what=link.name,
            )
