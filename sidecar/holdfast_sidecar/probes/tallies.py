"""What the host counted earlier, for those who judge by how it changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from holdfast_sidecar.readings.host import HostReading, Tally

EVERY_S = 15.0
KEPT = 241
"""An hour: what is rarer than that is no storm, and no disk's filling is told from further back."""


@dataclass
class Tallies:
    """Kept from reading to reading."""

    _kept: list[Tally] = field(default_factory=list)

    def beside(
        self, reading: HostReading, clock_apart_s: float | None, now_s: float
    ) -> HostReading:
        """The reading with its own tally and the earlier ones."""
        tally = tally_of(reading, clock_apart_s, now_s)
        reading = replace(reading, now=tally, earlier=tuple(self._kept))
        if not self._kept or now_s - self._kept[-1].at_s >= EVERY_S:
            self._kept = [*self._kept, tally][-KEPT:]
        return reading


def tally_of(reading: HostReading, clock_apart_s: float | None, now_s: float) -> Tally:
    """What of the reading only means something beside its earlier self."""
    group, errors = reading.group, reading.memory_errors
    return Tally(
        at_s=now_s,
        periods=None if group is None else group.periods,
        throttled_periods=None if group is None else group.throttled_periods,
        corrected=None if errors is None else errors.corrected,
        uncorrected=None if errors is None else errors.uncorrected,
        hung_tasks=reading.hung_tasks,
        available={purpose: room.available_bytes for purpose, room in reading.rooms.items()},
        margins={sensor.name: sensor.margin for sensor in reading.sensors},
        clock_apart_s=clock_apart_s,
        was_synchronised=None if reading.clock is None else reading.clock.is_synchronised,
    )
