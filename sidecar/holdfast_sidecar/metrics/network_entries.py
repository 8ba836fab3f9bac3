"""Metrics of network interfaces; `network_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NIC, counter, gauge

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
