"""RDMA ports from sysfs: whether the link is up each second, counters every few seconds.

mlx5 answers each file of `counters/` with a firmware command of its own, and each of `hw_counters/`
with one per `lifespan`; nobody looks at them more often than they are scraped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_sidecar.linux.files import KeptFiles, link_name, names_in, read_if_any
from holdfast_sidecar.linux.probe_runner import PartlyReadError
from holdfast_sidecar.probes.fabric import port_files
from holdfast_sidecar.probes.fabric.counters import (
    COUNTERS,
    DRIFTING,
    EFA_COUNTERS,
    HW_COUNTERS,
)
from holdfast_sidecar.probes.fabric.selection import Selection
from holdfast_sidecar.readings.fabric import Device, FabricReading, Port
from holdfast_sidecar.readings.links import LinkLook, LinkStory
from holdfast_sidecar.readings.trail import Trail

COUNTERS_EVERY_S = 5.0
"""A third of the usual scrape interval. At 8 ports with 32 counters each this is what costs."""


@dataclass
class _Watched:
    """A port that is listed, and when its counters are due."""

    directory: str
    counters: tuple[str, ...]
    hw_counters: tuple[str, ...]
    lifespan_s: float
    port: Port
    hw_due_s: float = float("-inf")
    hw_values: Mapping[str, int] = field(default_factory=dict)


@dataclass
class FabricProbe:
    """Reads sysfs under `root` (/sys/class/infiniband). No such directory: there are no ports."""

    root: Path = Path("/sys/class/infiniband")
    selection: Selection = field(default_factory=Selection)
    name: str = "fabric"
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _links: dict[str, LinkStory] = field(default_factory=dict)
    _trails: dict[str, dict[str, Trail]] = field(default_factory=dict)
    _counters_due_s: float = float("-inf")
    _since_s: float | None = None
    _wrong: list[str] = field(default_factory=list)
    """What made no sense at the last look."""
    _files: KeptFiles = field(default_factory=KeptFiles)
    """Of counters; a state is looked up by its path, which tells at once that a port is gone."""

    def read(self, now_s: float) -> FabricReading:
        """All ports; counters as of the last time they were due. PartlyReadError where the state of
        one can't be read, or makes no sense."""
        self._wrong.clear()
        are_counters_due = now_s >= self._counters_due_s
        if are_counters_due:
            self._counters_due_s = now_s + COUNTERS_EVERY_S
            self._list()
        for name, watched in list(self._watched.items()):
            self._look(name, watched, are_counters_due, now_s)
        for name in self._links.keys() - self._watched.keys():
            self._links[name] = self._links[name].vanished(now_s)
        ports = {name: watched.port for name, watched in self._watched.items()}
        trails = {name: dict(trails) for name, trails in self._trails.items()}
        if self._since_s is None:
            self._since_s = now_s
        reading = FabricReading(ports, dict(self._links), trails, self._since_s)
        if self._wrong:
            raise PartlyReadError(reading, "; ".join(self._wrong))
        return reading

    def _list(self) -> None:
        listed = dict(list_ports(str(self.root), self.selection))
        known = self._watched
        self._watched = {
            name: self._watched.get(name) or _begin(directory) for name, directory in listed.items()
        }
        for name in known.keys() - self._watched.keys():
            self._files.forget(known[name].directory)

    def _look(self, name: str, watched: _Watched, are_counters_due: bool, now_s: float) -> None:
        state: int | None = None
        try:
            state = port_files.read_state(watched.directory)
        except (FileNotFoundError, NotADirectoryError):
            del self._watched[name]  # until it is listed again
            self._files.forget(watched.directory)
            return
        except OSError as error:  # the device is there and does not answer
            self._wrong.append(f"{name}: its state can't be read: {error.strerror}")
        except ValueError as error:
            self._wrong.append(f"{name}: {error}")
        if state != watched.port.state:
            watched.port = replace(watched.port, state=state)
        if are_counters_due:
            _count(watched, self._files, now_s)
            self._follow_errors(name, watched.port.counters, now_s)
        port = watched.port
        look = LinkLook(
            port.is_up,
            port.counters.get("link_downed"),
            port.rate_bytes_per_s,
            port.device.board,
        )
        self._links[name] = self._links.get(name, LinkStory(name)).seen(look, now_s)

    def _follow_errors(self, name: str, counters: Mapping[str, int], now_s: float) -> None:
        trails = self._trails.setdefault(name, {})
        for counter in DRIFTING:
            if counter in counters:
                trails[counter] = trails.get(counter, Trail()).then(now_s, counters[counter])


def list_ports(root: str, selection: Selection) -> Iterator[tuple[str, str]]:
    """(`mlx5_0/1`, its directory) of all ports that are to be read. Raises OSError."""
    for device in names_in(root):
        if selection.has(device):
            ports = f"{root}/{device}/ports"
            for number in names_in(ports):
                if number.isdecimal():
                    yield f"{device}/{number}", f"{ports}/{number}"


def _begin(directory: str) -> _Watched:
    """What never changes of a port, read once."""
    path = Path(directory)
    hw_directory = f"{directory}/hw_counters"
    return _Watched(
        directory,
        port_files.present(f"{directory}/counters", COUNTERS),
        port_files.present(hw_directory, (*HW_COUNTERS, *EFA_COUNTERS)),
        port_files.parse_lifespan_s(read_if_any(f"{hw_directory}/lifespan")),
        Port(
            device=read_device(path.parent.parent),
            number=int(path.name),
            link_layer=read_if_any(f"{directory}/link_layer").strip(),
        ),
    )


def read_device(directory: Path) -> Device:
    """Whose device it is, and which board."""
    return Device(
        name=directory.name,
        driver=link_name(directory / "device/driver"),
        board=read_if_any(directory / "board_id").strip(),
        firmware=read_if_any(directory / "fw_ver").strip(),
        pci=link_name(directory / "device"),
    )


def _count(watched: _Watched, files: KeptFiles, now_s: float) -> None:
    """Everything that is read every few seconds."""
    directory = watched.directory
    if now_s >= watched.hw_due_s:
        watched.hw_due_s = now_s + watched.lifespan_s
        watched.hw_values = port_files.read_counters(
            f"{directory}/hw_counters", watched.hw_counters, files
        )
    counters = port_files.read_counters(f"{directory}/counters", watched.counters, files)
    watched.port = replace(
        watched.port,
        physical_state=port_files.read_physical_state(directory, files),
        rate_bytes_per_s=port_files.read_rate(directory, files),
        counters={**counters, **watched.hw_values},
    )
