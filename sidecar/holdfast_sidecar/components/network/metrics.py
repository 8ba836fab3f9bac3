"""Metrics of RDMA ports, PCIe errors and retransmissions; `fabric_samples.py` fills them in."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.components.machine import KernelEvents
from holdfast_sidecar.components.network.readings import (
    FabricReading,
    Interface,
    NetworkReading,
    PciReading,
    Port,
    TcpReading,
)
from holdfast_sidecar.components.network.round_trip_checks import RoundTrips
from holdfast_sidecar.records.metric import NIC, NODE, PORT, RANK, Labels, Sample, counter, gauge

FABRIC = (
    gauge(
        "rdma_port_info",
        "",
        (*PORT, "link_layer", "driver", "board", "firmware", "pci"),
        "An RDMA port; always 1. Its `link_layer` is InfiniBand, or Ethernet for RoCE.",
    ),
    gauge(
        "rdma_port_state_id",
        "",
        PORT,
        "1 down, 2 initialising, 3 armed (both: no subnet manager yet), 4 active.",
    ),
    gauge(
        "rdma_port_physical_state_id",
        "",
        PORT,
        "2 polling (no cable, or no other end), 3 disabled, 5 link up, 6 recovering.",
    ),
    gauge("rdma_port_rate_bytes_per_second", "bytes", PORT, "Rate agreed with the other end."),
    gauge("rdma_link_flaps", "", PORT, "How often its link came back within 12 hours."),
    counter("rdma_receive_bytes_total", "bytes", PORT, "Bytes received."),
    counter("rdma_transmit_bytes_total", "bytes", PORT, "Bytes sent."),
    counter("rdma_received_packets_total", "", PORT, "Packets received."),
    counter("rdma_transmitted_packets_total", "", PORT, "Packets sent."),
    counter(
        "rdma_operation_bytes_total",
        "bytes",
        (*PORT, "operation"),
        "Bytes read from, or written to, other nodes' memory (EFA).",
    ),
    counter(
        "rdma_transmit_wait_ticks_total",
        "",
        PORT,
        "Ticks (of a length that the vendor knows) in which there was data to send and no credit.",
    ),
    counter("rdma_link_downed_total", "", PORT, "How often the link was lost."),
    counter("rdma_link_error_recoveries_total", "", PORT, "How often it was trained anew."),
    counter("rdma_symbol_errors_total", "", PORT, "Symbols that came broken over the wire."),
    counter(
        "rdma_link_integrity_errors_total", "", PORT, "How often too many packets came broken."
    ),
    counter(
        "rdma_receive_errors_total",
        "",
        (*PORT, "kind"),
        "Packets received in error: here (`local`), or marked so by a switch before (`remote`).",
    ),
    counter("rdma_discards_total", "", (*PORT, "direction"), "Packets thrown away."),
    counter(
        "rdma_buffer_overruns_total",
        "",
        (*PORT, "kind"),
        "Buffers that ran over (`vl15`: those of the subnet manager).",
    ),
    counter(
        "rdma_local_ack_timeout_errors_total",
        "",
        PORT,
        "Requests whose acknowledgement did not come in time.",
    ),
    counter("rdma_packet_sequence_errors_total", "", PORT, "Sequence errors that others told of."),
    counter(
        "rdma_out_of_sequence_total",
        "",
        PORT,
        "Packets received out of order: losses, or adaptive routing, which is no fault.",
    ),
    counter("rdma_rnr_nak_total", "", PORT, "Refusals by a receiver that had posted no buffer."),
    counter(
        "rdma_retries_exceeded_total",
        "",
        PORT,
        "Queue pairs that ended because all their retries were in vain.",
    ),
    counter(
        "rdma_cqe_errors_total",
        "",
        (*PORT, "side"),
        "Requests completed in error. Those that a teardown flushes are left out.",
    ),
    counter("rdma_out_of_buffer_total", "", PORT, "Packets dropped because the host was slow."),
    counter(
        "rdma_ecn_marked_packets_total", "", PORT, "RoCE packets that a switch marked (congestion)."
    ),
    counter(
        "rdma_cnp_total",
        "",
        (*PORT, "role"),
        "Congestion notifications sent, handled, ignored.",
    ),
    counter(
        "rdma_retransmits_total",
        "",
        (*PORT, "kind"),
        "What the port sent again, by the mechanism that did.",
    ),
    counter("rdma_icrc_errors_total", "", PORT, "RoCE packets whose checksum was wrong."),
    counter(
        "rdma_remote_events_total",
        "",
        (*PORT, "event"),
        "Other ends that did not answer, or over a bad connection (EFA).",
    ),
    counter(
        "pci_aer_errors_total",
        "",
        (*NODE, "device", "kind", "severity"),
        "Errors on the PCIe link of a GPU, NIC or NVSwitch, as the kernel logs them (AER).",
    ),
    counter(
        "kernel_events_total",
        "",
        (*NODE, "event"),
        "Lines of the kernel's log that tell of a part in trouble, by what they tell.",
    ),
    gauge(
        "node_peer_rtt_seconds",
        "seconds",
        (*NODE, "peer"),
        "How long a packet took to another node's sidecar and back: median of the last half "
        "minute, for at most some sixteen others.",
    ),
    gauge(
        "node_peer_loss_ratio",
        "",
        (*NODE, "peer"),
        "Which part of those packets did not come back.",
    ),
    counter(
        "net_tcp_retransmits_total",
        "",
        NODE,
        "TCP segments sent again by all sockets of this network namespace.",
    ),
    counter(
        "rank_tcp_retransmits_total",
        "",
        RANK,
        "TCP segments that the rank's own connections sent again since its process was seen.",
    ),
)


# What is told about RDMA ports, PCIe errors and retransmissions.

Named = tuple[str, dict[str, str]]

PORT_COUNTERS: dict[str, Named] = {
    "port_rcv_data": ("rdma_receive_bytes_total", {}),
    "port_xmit_data": ("rdma_transmit_bytes_total", {}),
    "rx_bytes": ("rdma_receive_bytes_total", {}),
    "tx_bytes": ("rdma_transmit_bytes_total", {}),
    "port_rcv_packets": ("rdma_received_packets_total", {}),
    "port_xmit_packets": ("rdma_transmitted_packets_total", {}),
    "rx_pkts": ("rdma_received_packets_total", {}),
    "tx_pkts": ("rdma_transmitted_packets_total", {}),
    "rdma_read_bytes": ("rdma_operation_bytes_total", {"operation": "read"}),
    "rdma_write_bytes": ("rdma_operation_bytes_total", {"operation": "write"}),
    "port_xmit_wait": ("rdma_transmit_wait_ticks_total", {}),
    "link_downed": ("rdma_link_downed_total", {}),
    "link_error_recovery": ("rdma_link_error_recoveries_total", {}),
    "symbol_error": ("rdma_symbol_errors_total", {}),
    "local_link_integrity_errors": ("rdma_link_integrity_errors_total", {}),
    "port_rcv_errors": ("rdma_receive_errors_total", {"kind": "local"}),
    "port_rcv_remote_physical_errors": ("rdma_receive_errors_total", {"kind": "remote"}),
    "port_xmit_discards": ("rdma_discards_total", {"direction": "transmit"}),
    "rx_drops": ("rdma_discards_total", {"direction": "receive"}),
    "excessive_buffer_overrun_errors": ("rdma_buffer_overruns_total", {"kind": "data"}),
    "VL15_dropped": ("rdma_buffer_overruns_total", {"kind": "vl15"}),
    "local_ack_timeout_err": ("rdma_local_ack_timeout_errors_total", {}),
    "packet_seq_err": ("rdma_packet_sequence_errors_total", {}),
    "out_of_sequence": ("rdma_out_of_sequence_total", {}),
    "rnr_nak_retry_err": ("rdma_rnr_nak_total", {}),
    "req_transport_retries_exceeded": ("rdma_retries_exceeded_total", {}),
    "out_of_buffer": ("rdma_out_of_buffer_total", {}),
    "np_ecn_marked_roce_packets": ("rdma_ecn_marked_packets_total", {}),
    "np_cnp_sent": ("rdma_cnp_total", {"role": "sent"}),
    "rp_cnp_handled": ("rdma_cnp_total", {"role": "handled"}),
    "rp_cnp_ignored": ("rdma_cnp_total", {"role": "ignored"}),
    "roce_slow_restart": ("rdma_retransmits_total", {"kind": "slow_restart"}),
    "roce_adp_retrans": ("rdma_retransmits_total", {"kind": "adaptive"}),
    "roce_adp_retrans_to": ("rdma_retransmits_total", {"kind": "adaptive_timeout"}),
    "retrans_pkts": ("rdma_retransmits_total", {"kind": "packets"}),
    "retrans_timeout_events": ("rdma_retransmits_total", {"kind": "timeout"}),
    "rx_icrc_encapsulated": ("rdma_icrc_errors_total", {}),
    "unresponsive_remote_events": ("rdma_remote_events_total", {"event": "unresponsive"}),
    "impaired_remote_conn_events": ("rdma_remote_events_total", {"event": "impaired"}),
}
"""The kernel's name -> ours, and what tells it from others of that name."""

CQE_ERRORS = {
    "requester": ("req_cqe_error", "req_cqe_flush_error"),
    "responder": ("resp_cqe_error", "resp_cqe_flush_error"),
}
"""Side -> all of them, and those among them that a teardown makes."""


def draw_fabric(fabric: FabricReading, told: Labels) -> Iterator[Sample]:
    """Every RDMA port."""
    for port in fabric.ports.values():
        of_port = told.about(device=port.device.name, port=str(port.number))
        yield from _draw_port(port, of_port)
        if port.name in fabric.links:
            yield from of_port("rdma_link_flaps", len(fabric.links[port.name].flaps_s))


def _draw_port(port: Port, of_port: Labels) -> Iterator[Sample]:
    device = port.device
    yield from of_port(
        "rdma_port_info",
        1,
        link_layer=port.link_layer,
        driver=device.driver,
        board=device.board,
        firmware=device.firmware,
        pci=device.pci,
    )
    yield from of_port("rdma_port_state_id", port.state)
    yield from of_port("rdma_port_physical_state_id", port.physical_state)
    yield from of_port("rdma_port_rate_bytes_per_second", port.rate_bytes_per_s)
    told: set[str] = set()
    for key, (name, labels) in PORT_COUNTERS.items():
        series = f"{name}{labels}"
        if key in port.counters and series not in told:  # bnxt_re tells bytes by both names
            told.add(series)
            yield from of_port(name, port.counters[key], **labels)
    for side, (everything, flushed) in CQE_ERRORS.items():
        if everything in port.counters:
            errors = port.counters[everything] - port.counters.get(flushed, 0)
            yield from of_port("rdma_cqe_errors_total", max(0, errors), side=side)


def draw_pci(pci: PciReading, told: Labels) -> Iterator[Sample]:
    """Every device that reports errors."""
    for device in pci.devices.values():
        for severity, count in device.errors.items():
            yield from told(
                "pci_aer_errors_total",
                count,
                device=device.address,
                kind=device.kind,
                severity=severity,
            )


def draw_kernel_events(events: KernelEvents, told: Labels) -> Iterator[Sample]:
    """Every event that there is, from 0 on."""
    for name, count in sorted(events.counts.items()):
        yield from told("kernel_events_total", count, event=name)


def draw_round_trips(trips: RoundTrips, told: Labels) -> Iterator[Sample]:
    """The other nodes that this one exchanges packets with; those that never answered may be
    behind a firewall, so nothing is told of them."""
    for peer, one in (trips.windows[-1] if trips.windows else {}).items():
        yield from told("node_peer_rtt_seconds", one.median_s, peer=peer)
        if peer in trips.ever_answered:
            yield from told("node_peer_loss_ratio", one.lost / one.sent, peer=peer)


def draw_tcp(tcp: TcpReading, told: Labels) -> Iterator[Sample]:
    """This host, and the ranks that can be looked at."""
    yield from told("net_tcp_retransmits_total", tcp.of_host)
    for rank, count in sorted(tcp.by_rank.items()):
        yield from told("rank_tcp_retransmits_total", count, rank=str(rank))


# Metrics of network interfaces; `network_samples.py` fills them in.

NETWORK = (
    gauge(
        "net_info",
        "",
        (*NIC, "driver", "pci", "roce_ecn"),
        "A physical interface; always 1. `roce_ecn`: priorities with congestion notification, for "
        "those who notice it (np) and those who react (rp).",
    ),
    gauge("net_up", "", NIC, "1 while the interface has carrier."),
    gauge("net_speed_bytes_per_second", "bytes", NIC, "Speed of the link."),
    counter("net_carrier_losses_total", "", NIC, "How often carrier was lost."),
    counter(
        "net_carrier_changes_total", "", NIC, "How often carrier was lost or found, by the kernel."
    ),
    gauge("net_mtu_bytes", "bytes", NIC, "Largest packet that the interface sends."),
    gauge("net_link_flaps", "", NIC, "How often its link came back within 12 hours."),
    counter(
        "net_pause_frames_total",
        "",
        (*NIC, "prio", "direction"),
        "Frames with which one end asks the other to wait, by the driver; `prio` is `all` for "
        "those of the whole link.",
    ),
    counter(
        "net_discards_total",
        "",
        (*NIC, "direction"),
        "Frames that the port itself threw away for want of room, by the driver.",
    ),
    counter("net_receive_bytes_total", "bytes", NIC, "Bytes received."),
    counter("net_transmit_bytes_total", "bytes", NIC, "Bytes sent."),
    counter("net_receive_errors_total", "", NIC, "Frames received in error."),
    counter("net_transmit_errors_total", "", NIC, "Frames that could not be sent."),
    counter("net_receive_drops_total", "", NIC, "Frames received and dropped."),
    counter("net_transmit_drops_total", "", NIC, "Frames dropped before sending."),
)


# What is told about network interfaces.

NET_COUNTERS = {
    "rx_bytes": "net_receive_bytes_total",
    "tx_bytes": "net_transmit_bytes_total",
    "rx_errors": "net_receive_errors_total",
    "tx_errors": "net_transmit_errors_total",
    "rx_dropped": "net_receive_drops_total",
    "tx_dropped": "net_transmit_drops_total",
}


def draw_network(network: NetworkReading, told: Labels) -> Iterator[Sample]:
    """Every interface."""
    for link in network.interfaces.values():
        of_link = told.about(device=link.name)
        yield from of_link("net_up", link.has_carrier)
        yield from of_link("net_speed_bytes_per_second", link.speed_bytes_per_s)
        yield from of_link("net_carrier_losses_total", link.carrier_losses)
        yield from of_link("net_carrier_changes_total", link.carrier_changes)
        yield from of_link("net_mtu_bytes", link.mtu_bytes)
        for key, name in NET_COUNTERS.items():
            yield from of_link(name, link.counters.get(key))
        if link.is_physical:
            yield from _of_physical(link, network, of_link)


def _of_physical(link: Interface, network: NetworkReading, of_link: Labels) -> Iterator[Sample]:
    yield from of_link("net_info", 1, driver=link.driver, pci=link.pci, roce_ecn=link.roce_ecn)
    if link.name in network.links:
        yield from of_link("net_link_flaps", len(network.links[link.name].flaps_s))
    for (what, direction, priority), frames in sorted(link.frames.items()):
        if what == "pause":
            yield from of_link("net_pause_frames_total", frames, prio=priority, direction=direction)
        else:
            yield from of_link("net_discards_total", frames, direction=direction)
