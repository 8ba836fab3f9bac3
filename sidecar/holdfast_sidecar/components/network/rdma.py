"""RDMA ports from sysfs: whether the link is up each second, counters every few seconds.

mlx5 answers each file of `counters/` with a firmware command of its own, and each of `hw_counters/`
with one per `lifespan`; nobody looks at them more often than they are scraped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from holdfast_sidecar.components.network.readings import (
    FabricReading,
    LinkLook,
    LinkStory,
    Port,
    RateWindow,
    RdmaDevice,
)
from holdfast_sidecar.config.settings import FabricSettings
from holdfast_sidecar.linux.files import (
    KeptFiles,
    link_name,
    list_names,
    names_in,
    read_if_any,
    read_text,
)
from holdfast_sidecar.linux.probe_runner import PartlyReadError

# Which counters of an RDMA port are read, and how their files are to be understood.
#
# The names are the kernel's; paths under `/sys/class/infiniband/<device>/ports/<port>/`.

WORD_BYTES = 4
"""In which data are counted (InfiniBand specification, PortCounters; the kernel hands it on)."""

IN_WORDS = frozenset({"port_xmit_data", "port_rcv_data"})

SATURATED = 2**32 - 1
"""Where a 32-bit counter of data or packets stops: it says nothing any more. That of the 64-bit
ones never gets there. Error counters of 4 to 16 bits stop too, but `at least` is still worth it."""

CAN_SATURATE = IN_WORDS | {"port_xmit_packets", "port_rcv_packets", "port_xmit_wait"}

COUNTERS = (
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "port_xmit_wait",
    "port_xmit_discards",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "symbol_error",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)

HW_COUNTERS = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "req_cqe_error",
    "resp_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_flush_error",
    "out_of_buffer",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "roce_slow_restart",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "rx_icrc_encapsulated",
)

EFA_COUNTERS = (
    "tx_bytes",
    "rx_bytes",
    "tx_pkts",
    "rx_pkts",
    "rx_drops",
    "rdma_read_bytes",
    "rdma_write_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
)
"""An EFA device has these in `hw_counters`, and no `counters` at all."""

DRIFTING = (
    "symbol_error",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "excessive_buffer_overrun_errors",
    "local_ack_timeout_err",
    "retrans_timeout_events",
)
"""Error counters whose way is followed; `components/network/checks.py` says what is too much."""


def parse_counter(name: str, text: str) -> int | None:
    """A counter's file; None for what is none (`N/A (no PMA)`, garbage, below 0, saturated)."""
    word = text.split(None, 1)[0] if text.strip() else ""
    if not word.isascii() or not word.isdecimal():
        return None
    value = int(word)
    if value == SATURATED and name in CAN_SATURATE:
        return None
    return value * WORD_BYTES if name in IN_WORDS else value


# What the files of one RDMA port say: `state`, `phys_state`, `rate`, counters.

_STATE = re.compile(r"\s*(\d+)\s*:")
MOST_STATE = 5
"""ACTIVE_DEFER; the kernel has no name for any above (ib_verbs.h, enum ib_port_state)."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec")


def parse_state(text: str) -> int | None:
    """The number in `4: ACTIVE` and `5: LinkUp`; None when there is none."""
    found = _STATE.match(text)
    return int(found[1]) if found else None


def parse_rate(text: str) -> float | None:
    """Bytes per second of `400 Gb/sec (4X NDR)`; None when it says none, or 0 (no link)."""
    found = _RATE.match(text)
    return float(found[1]) * 1e9 / 8 or None if found else None


def parse_lifespan_s(text: str) -> float:
    """Seconds for which hw_counters keep what they said; 0: unknown. The file has milliseconds."""
    word = text.strip()
    return int(word) / 1000 if word.isascii() and word.isdecimal() else 0.0


def read_state(directory: str) -> int:
    """The logical state now. Raises OSError when it can't be read: the device may be gone;
    ValueError when it says none."""
    text = read_text(f"{directory}/state")
    state = parse_state(text)
    if state is None or state > MOST_STATE:
        raise ValueError(f"its state reads {text.strip()[:40]!r}")
    return state


def read_physical_state(directory: str, files: KeptFiles) -> int | None:
    """The physical state: polling is a missing cable, disabled somebody's will."""
    return parse_state(files.read_if_any(f"{directory}/phys_state"))


def read_rate(directory: str, files: KeptFiles) -> float | None:
    """The rate that was agreed with the other end, bytes per second."""
    return parse_rate(files.read_if_any(f"{directory}/rate"))


def present(directory: str, names: Iterable[str]) -> tuple[str, ...]:
    """Which of these counters the driver has; none where there is no such directory."""
    there = set(list_names(directory))
    return tuple(name for name in names if name in there)


def read_counters(directory: str, names: Iterable[str], files: KeptFiles) -> Mapping[str, int]:
    """Counters by name; those that can't be read, or say no number, are left out."""
    read = {name: parse_counter(name, files.read_if_any(f"{directory}/{name}")) for name in names}
    return {name: value for name, value in read.items() if value is not None}


# Which RDMA devices are read: settings' patterns, asked before any of their files is opened.


@dataclass(frozen=True)
class Selection:
    """Shell patterns of device names."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    @staticmethod
    def of(settings: FabricSettings) -> Selection:
        """As the settings have them."""
        return Selection(_patterns(settings.include), _patterns(settings.exclude))

    def has(self, name: str) -> bool:
        """Whether this device is read."""
        return _matches(name, self.include) and not _matches(name, self.exclude)


def _patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
    _trails: dict[str, dict[str, RateWindow]] = field(default_factory=dict)
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
            state = read_state(watched.directory)
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
                trails[counter] = trails.get(counter, RateWindow()).then(now_s, counters[counter])


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
        present(f"{directory}/counters", COUNTERS),
        present(hw_directory, (*HW_COUNTERS, *EFA_COUNTERS)),
        parse_lifespan_s(read_if_any(f"{hw_directory}/lifespan")),
        Port(
            device=read_device(path.parent.parent),
            number=int(path.name),
            link_layer=read_if_any(f"{directory}/link_layer").strip(),
        ),
    )


def read_device(directory: Path) -> RdmaDevice:
    """Whose device it is, and which board."""
    return RdmaDevice(
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
        watched.hw_values = read_counters(f"{directory}/hw_counters", watched.hw_counters, files)
    counters = read_counters(f"{directory}/counters", watched.counters, files)
    watched.port = replace(
        watched.port,
        physical_state=read_physical_state(directory, files),
        rate_bytes_per_s=read_rate(directory, files),
        counters={**counters, **watched.hw_values},
    )
