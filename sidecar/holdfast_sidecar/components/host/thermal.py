"""Temperatures and energy of the host, where the kernel tells them.

Of each kind of sensor the one nearest to its critical temperature is told: a host has a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.components.host.clock import read_apart_s, read_clock
from holdfast_sidecar.components.host.memory import read_memory_errors
from holdfast_sidecar.components.host.readings import Clock, HostReading, MemoryErrors, Sensor
from holdfast_sidecar.linux.files import list_names, read_if_any
from holdfast_sidecar.records.findings import Finding, Kind, Moment

COLDEST, HOTTEST = -40.0, 200.0
"""What a part of a computer can have, °C; an unconnected sensor tells -128 or 65261."""

OTHER_WAY = "-mmio"
"""In the name of a zone: the same package's counter, told a second time by memory-mapped I/O."""


def read_sensors(sys: Path) -> tuple[Sensor, ...]:
    """The nearest to critical of each kind; those that name no critical temperature left out."""
    return nearest([*_read_hwmon(sys / "class/hwmon"), *_read_zones(sys / "class/thermal")])


def nearest(sensors: Iterable[Sensor]) -> tuple[Sensor, ...]:
    """One by name, by name."""
    least: dict[str, Sensor] = {}
    for sensor in sensors:
        if sensor.name not in least or sensor.margin < least[sensor.name].margin:
            least[sensor.name] = sensor
    return tuple(least[name] for name in sorted(least))


def read_energy(sys: Path) -> dict[str, float]:
    """Joules so far by RAPL domain (`package-0`, `psys`), those in them left out; since 2020 root
    alone may read them."""
    found: dict[str, float] = {}
    for zone in list_names(sys / "class/powercap"):
        directory = f"{sys}/class/powercap/{zone}"
        microjoules = _read_number(f"{directory}/energy_uj")
        name = read_if_any(f"{directory}/name").strip()
        is_whole = zone.count(":") == 1 and OTHER_WAY not in zone
        if microjoules is not None and name and is_whole:
            found[name] = found.get(name, 0.0) + microjoules / 1e6
    return found


def judge_sensor(name: str, temperature: int | None, critical: int | None) -> Sensor | None:
    """Of two readings in thousandths of a degree; None of nonsense, or without a limit."""
    if temperature is None or critical is None or not name:
        return None
    sensor = Sensor(name, temperature / 1000, critical / 1000)
    is_sane = COLDEST <= sensor.temperature <= HOTTEST and 0 < sensor.critical <= HOTTEST
    return sensor if is_sane else None


def _read_hwmon(root: Path) -> Iterator[Sensor]:
    for chip in list_names(root):
        directory = f"{root}/{chip}"
        name = read_if_any(f"{directory}/name").strip()
        for file in list_names(directory):
            if file.startswith("temp") and file.endswith("_input"):
                critical = _read_number(f"{directory}/{file.removesuffix('_input')}_crit")
                found = judge_sensor(name, _read_number(f"{directory}/{file}"), critical)
                if found is not None:
                    yield found


def _read_zones(root: Path) -> Iterator[Sensor]:
    for zone in list_names(root):
        directory = f"{root}/{zone}"
        trips = [t for t in list_names(directory) if t.endswith("_type") and t != "type"]
        for trip in trips:
            if read_if_any(f"{directory}/{trip}").strip() == "critical":
                critical = _read_number(f"{directory}/{trip.removesuffix('_type')}_temp")
                name = read_if_any(f"{directory}/type").strip()
                found = judge_sensor(name, _read_number(f"{directory}/temp"), critical)
                if found is not None:
                    yield found


def _read_number(path: str) -> int | None:
    try:
        return int(read_if_any(path))
    except ValueError:
        return None


# A part of the host about as hot as it may get: it slows down, or will be switched off.

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


# What of the host's own parts changes slowly: clock, heat, energy, errors of its memory.


@dataclass(frozen=True)
class Hardware:
    """Each absent or empty where the kernel does not tell it."""

    clock: Clock | None = None
    clock_apart_s: float | None = None
    errors: MemoryErrors | None = None
    sensors: tuple[Sensor, ...] = ()
    energy_j: Mapping[str, float] | None = None


@dataclass(frozen=True)
class HardwareProbe:
    """Reads below `sys`, and asks the kernel about the clock."""

    sys: Path
    name: str = "hardware"

    def read(self, now_s: float) -> Hardware:
        """All of it now."""
        return Hardware(
            clock=read_clock(),
            clock_apart_s=read_apart_s(),
            errors=read_memory_errors(self.sys),
            sensors=read_sensors(self.sys),
            energy_j=read_energy(self.sys),
        )
