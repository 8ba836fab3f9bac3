"""Metrics of network interfaces and fabric; `network_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.metrics.entry import NIC, counter, gauge

NETWORK = (
    gauge("net_up", "", NIC, "1 while the interface has carrier."),
    gauge("net_speed_bytes_per_second", "bytes", NIC, "Speed of the link."),
    counter("net_carrier_losses_total", "", NIC, "How often carrier was lost."),
    counter("net_receive_bytes_total", "bytes", NIC, "Bytes received."),
    counter("net_transmit_bytes_total", "bytes", NIC, "Bytes sent."),
    counter("net_receive_errors_total", "", NIC, "Frames received in error."),
    counter("net_transmit_errors_total", "", NIC, "Frames that could not be sent."),
    counter("net_receive_drops_total", "", NIC, "Frames received and dropped."),
    counter("net_transmit_drops_total", "", NIC, "Frames dropped before sending."),
)
