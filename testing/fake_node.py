"""A node's hardware that is none: GPUs, RDMA ports and what makes a sidecar take them for real."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testing.fake_nvml.driver import FakeNvml, environment

# A /sys in a directory: RDMA ports, network interfaces and PCI devices as Linux shows them.
#
# For the demo, the benchmarks and the tests: set `paths.machine_root` to its root. Values change in
# place, as the kernel's do, so that who holds a file open sees them too.

COUNTERS = (
    *("excessive_buffer_overrun_errors", "link_downed", "link_error_recovery"),
    *("local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets"),
    *("port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets"),
    *("port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors"),
    *("port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards"),
    *("port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets"),
    *("unicast_xmit_packets", "VL15_dropped"),
)
HW_COUNTERS = (
    *("duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err"),
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence"),
    *("packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors"),
    *("req_remote_invalid_request", "req_transport_retries_exceeded", "resp_cqe_error"),
    *("resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors"),
    *("rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart"),
    *("roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled"),
    *("rp_cnp_ignored", "rx_atomic_requests", "rx_dct_connect", "rx_icrc_encapsulated"),
    *("rx_read_requests", "rx_write_requests"),
)
"""What mlx5 has (ConnectX-7, Linux 6.8)."""

EFA_COUNTERS = (
    *("alloc_pd_err", "completed_cmds", "impaired_remote_conn_events", "rdma_read_bytes"),
    *("rdma_read_resp_bytes", "rdma_read_wr_err", "rdma_read_wrs", "rdma_write_bytes"),
    *("rdma_write_recv_bytes", "rdma_write_wr_err", "rdma_write_wrs", "recv_bytes"),
    *("recv_wrs", "retrans_bytes", "retrans_pkts", "retrans_timeout_events", "rx_bytes"),
    *("rx_drops", "rx_pkts", "send_bytes", "send_wrs", "tx_bytes", "tx_pkts"),
    "unresponsive_remote_events",
)

CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr")
UNCORRECTABLE = ("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt")
TOTALS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}

GPU_CLASS, INFINIBAND_CLASS, ETHERNET_CLASS = "0x030200", "0x020700", "0x020000"

ACTIVE, DOWN = ("4: ACTIVE", "5: LinkUp"), ("1: DOWN", "2: Polling")


@dataclass(frozen=True)
class FakeSysfs:
    """Adds devices and changes what they say. `root` holds `sys`."""

    root: Path

    @property
    def sys(self) -> Path:
        """The tree itself."""
        return self.root / "sys"

    def add_pci(self, address: str, class_code: str, driver: str = "") -> Path:
        """A PCI device with error counters, all at 0."""
        directory = self.sys / "bus/pci/devices" / address
        _write(directory / "class", class_code)
        for severity in TOTALS:
            self._write_errors(address, severity, 0)
        if driver:
            home = self.sys / "bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            (directory / "driver").symlink_to(home)
        return directory

    def set_errors(self, address: str, severity: str, count: int) -> None:
        """So many errors of a severity (`correctable`, `nonfatal`, `fatal`) so far."""
        self._write_errors(address, severity, count)

    def add_port(
        self,
        device: str,
        pci: str,
        rate: str = "400 Gb/sec (4X NDR)",
        link_layer: str = "InfiniBand",
        board: str = "MT_0000000838",
    ) -> Path:
        """An mlx5 device with one active port, all counters at 0."""
        port = self._add_device(device, pci, "mlx5_core", board, rate, link_layer)
        for counter in COUNTERS:
            _write(port / "counters" / counter, 0)
        for counter in HW_COUNTERS:
            _write(port / "hw_counters" / counter, 0)
        _write(port / "hw_counters/lifespan", 10)
        return port

    def add_efa(self, device: str, pci: str) -> Path:
        """An EFA device: no `counters`, and a link layer of its own."""
        port = self._add_device(device, pci, "efa", "", "100 Gb/sec (4X EDR)", "Unspecified")
        for counter in EFA_COUNTERS:
            _write(port / "hw_counters" / counter, 0)
        _write(port / "hw_counters/lifespan", 10)
        return port

    def add_interface(self, name: str, pci: str, speed_mbit: int = 400_000) -> Path:
        """A physical network interface with carrier."""
        directory = self.sys / "class/net" / name
        values = {
            "type": 1,
            "carrier": 1,
            "carrier_down_count": 0,
            "carrier_up_count": 1,
            "carrier_changes": 1,
            "operstate": "up",
            "speed": speed_mbit,
            "mtu": 9000,
        }
        for file, value in values.items():
            _write(directory / file, value)
        for counter in ("rx", "tx"):
            for part in ("bytes", "packets", "errors", "dropped"):
                _write(directory / "statistics" / f"{counter}_{part}", 0)
        device = self.sys / "bus/pci/devices" / pci
        if not device.exists():
            self.add_pci(pci, ETHERNET_CLASS, "mlx5_core")
        (directory / "device").symlink_to(device)
        return directory

    def port(self, device: str, number: int = 1) -> Path:
        """The directory of a port."""
        return self.sys / "class/infiniband" / device / "ports" / str(number)

    def set_state(self, device: str, state: tuple[str, str]) -> None:
        """ACTIVE or DOWN; a port that goes down counts it."""
        port = self.port(device)
        if state == DOWN and (port / "counters/link_downed").exists():
            self.count(device, link_downed=1)
        write_in_place(port / "state", state[0])
        write_in_place(port / "phys_state", state[1])

    def set_rate(self, device: str, rate: str) -> None:
        """`200 Gb/sec (4X HDR)`, for example."""
        write_in_place(self.port(device) / "rate", rate)

    def count(self, device: str, **growth: int) -> None:
        """Let counters grow by so much."""
        for counter, by in growth.items():
            where = "counters" if counter in COUNTERS else "hw_counters"
            path = self.port(device) / where / counter
            write_in_place(path, int(path.read_text()) + by)

    def set_carrier(self, name: str, has_carrier: bool) -> None:
        """An interface that loses its carrier, or finds it again."""
        directory = self.sys / "class/net" / name
        _add(directory / "carrier_changes", 1)
        _add(directory / f"carrier_{'up' if has_carrier else 'down'}_count", 1)
        write_in_place(directory / "operstate", "up" if has_carrier else "down")
        write_in_place(directory / "carrier", int(has_carrier))

    def _add_device(
        self, device: str, pci: str, driver: str, board: str, rate: str, link_layer: str
    ) -> Path:
        directory = self.sys / "class/infiniband" / device
        port = directory / "ports/1"
        values: Mapping[str, str] = {
            "state": ACTIVE[0],
            "phys_state": ACTIVE[1],
            "rate": rate,
            "link_layer": link_layer,
        }
        for file, value in values.items():
            _write(port / file, value)
        _write(directory / "fw_ver", "28.39.1002")
        if board:
            _write(directory / "board_id", board)
        (directory / "device").symlink_to(self.add_pci(pci, INFINIBAND_CLASS, driver))
        return port

    def _write_errors(self, address: str, severity: str, count: int) -> None:
        names = CORRECTABLE if severity == "correctable" else UNCORRECTABLE
        values = {
            **dict.fromkeys(names, 0),
            names[1]: count,
            f"TOTAL_ERR_{TOTALS[severity]}": count,
        }
        text = "\n".join(f"{name} {value}" for name, value in values.items())
        path = self.sys / "bus/pci/devices" / address / f"aer_dev_{severity}"
        (write_in_place if path.exists() else _write)(path, text)


def build_fabric(root: Path, ports: int = 8) -> FakeSysfs:
    """A node with so many NDR ports, each on a board of its own, and one Ethernet interface."""
    sysfs = FakeSysfs(root)
    for number in range(ports):
        sysfs.add_port(f"mlx5_{number}", f"0000:{0x18 + 16 * number:02x}:00.0")
    sysfs.add_interface("eth0", "0000:05:00.0", 100_000)
    return sysfs


def write_in_place(path: Path, value: object) -> None:
    """Change a file without an instant at which it is empty: what reads it meanwhile sees the new
    first line, whole."""
    content = f"{value}\n".encode()
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _add(path: Path, by: int) -> None:
    write_in_place(path, int(path.read_text()) + by)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


REAL = ("proc",)
"""Trees that are the machine's own: its load, its memory."""

KERNEL_LOG = "dev/kmsg"
"""Nothing was ever logged there. The machine's own may tell of GPUs at the same addresses, as where
such lines were written for a test."""

DRIVER = "dev/nvidiactl"
"""By which a launcher knows that its node's GPUs are worth a verdict."""


@dataclass(frozen=True)
class FakeNode:
    """`root` holds everything: set `paths.machine_root` to it, and let processes inherit
    `environment`."""

    root: Path
    nvml: FakeNvml
    sysfs: FakeSysfs
    environment: dict[str, str]

    def pci(self, gpu: int) -> str:
        """Where a GPU sits, as in sysfs."""
        return pci_of(self.nvml, gpu)


def build_node(root: Path, library: Path, gpus: int, ports: int) -> FakeNode:
    """A node in this directory, all of it healthy. `library`: see `fake_nvml.build`."""
    root.mkdir(parents=True)
    for tree in REAL:
        (root / tree).symlink_to(f"/{tree}")
    (root / KERNEL_LOG).parent.mkdir()
    os.mkfifo(root / KERNEL_LOG)
    if gpus:
        (root / DRIVER).touch()
    sysfs = build_fabric(root, ports)
    nvml = FakeNvml.create(root / "nvml", gpus)
    for gpu in range(gpus):
        sysfs.add_pci(pci_of(nvml, gpu), GPU_CLASS, "nvidia")
    return FakeNode(root, nvml, sysfs, environment(library, root / "nvml"))


def pci_of(nvml: FakeNvml, gpu: int) -> str:
    """Where a GPU sits, as in sysfs."""
    at = nvml.state.gpus[gpu]
    return f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.0"
