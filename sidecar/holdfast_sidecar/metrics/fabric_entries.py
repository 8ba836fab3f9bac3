"""Metrics of RDMA ports, PCIe errors and retransmissions; `fabric_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NODE, PORT, RANK, counter, gauge

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
