"""What is told about RDMA ports, PCIe errors and retransmissions."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.kernel_events import KernelEvents
from holdfast_sidecar.readings.fabric import FabricReading, PciReading, Port, TcpReading
from holdfast_sidecar.readings.round_trips import RoundTrips
from holdfast_sidecar.records.metric import Sample, Told

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


def draw_fabric(fabric: FabricReading, told: Told) -> Iterator[Sample]:
    """Every RDMA port."""
    for port in fabric.ports.values():
        of_port = told.about(device=port.device.name, port=str(port.number))
        yield from _draw_port(port, of_port)
        if port.name in fabric.links:
            yield from of_port("rdma_link_flaps", len(fabric.links[port.name].flaps_s))


def _draw_port(port: Port, of_port: Told) -> Iterator[Sample]:
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
    for counter, (name, labels) in PORT_COUNTERS.items():
        series = f"{name}{labels}"
        if counter in port.counters and series not in told:  # bnxt_re tells bytes by both names
            told.add(series)
            yield from of_port(name, port.counters[counter], **labels)
    for side, (everything, flushed) in CQE_ERRORS.items():
        if everything in port.counters:
            errors = port.counters[everything] - port.counters.get(flushed, 0)
            yield from of_port("rdma_cqe_errors_total", max(0, errors), side=side)


def draw_pci(pci: PciReading, told: Told) -> Iterator[Sample]:
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


def draw_kernel_events(events: KernelEvents, told: Told) -> Iterator[Sample]:
    """Every event that there is, from 0 on."""
    for name, count in sorted(events.counts.items()):
        yield from told("kernel_events_total", count, event=name)


def draw_round_trips(trips: RoundTrips, told: Told) -> Iterator[Sample]:
    """The other nodes that this one exchanges packets with; those that never answered may be
    behind a firewall, so nothing is told of them."""
    for peer, one in (trips.windows[-1] if trips.windows else {}).items():
        yield from told("node_peer_rtt_seconds", one.median_s, peer=peer)
        if peer in trips.ever_answered:
            yield from told("node_peer_loss_ratio", one.lost / one.sent, peer=peer)


def draw_tcp(tcp: TcpReading, told: Told) -> Iterator[Sample]:
    """This host, and the ranks that can be looked at."""
    yield from told("net_tcp_retransmits_total", tcp.of_host)
    for rank, count in sorted(tcp.by_rank.items()):
        yield from told("rank_tcp_retransmits_total", count, rank=str(rank))
