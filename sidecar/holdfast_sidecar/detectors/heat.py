"""A part of the host about as hot as it may get: it slows down, or will be switched off."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.host import HostReading, Sensor
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

MARGIN = 3.0
"""°C below the part's own critical temperature: where processors throttle themselves."""

FOR_S = 60.0
"""In all looks of a minute. A laptop's processor touches its limit in bursts; its power limit for
longer loads takes hold within half a minute and keeps it below."""

LEAST_LOOKS = 3


def find_heat(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """One finding for each kind of part."""
    for sensor in host.sensors:
        if sensor.margin < MARGIN and _was_hot(host, sensor):
            yield Finding(
                kind=Kind.HOST_HOT,
                node=moment.node,
                since_unix_s=moment.now_unix_s,
                confidence=0.8 if sensor.margin > 0 else 0.9,  # beyond it parts switch off
                evidence=[
                    f"{sensor.name} has {sensor.temperature:.0f} °C, critical is"
                    f" {sensor.critical:.0f} °C"
                ],
                what=sensor.name,
            )


def _was_hot(host: HostReading, sensor: Sensor) -> bool:
    if host.now is None or not host.earlier or host.earlier[0].at_s > host.now.at_s - FOR_S:
        return False
    lately = [one for one in host.earlier if one.at_s >= host.now.at_s - FOR_S]
    margins = [one.margins.get(sensor.name) for one in lately]
    return len(margins) >= LEAST_LOOKS and all(m is not None and m < MARGIN for m in margins)
