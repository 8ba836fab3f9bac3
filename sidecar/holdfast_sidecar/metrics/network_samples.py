"""What is told about network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.network import Interface, NetworkReading
from holdfast_sidecar.records.metric import Sample, Told

NET_COUNTERS = {
    "rx_bytes": "net_receive_bytes_total",
    "tx_bytes": "net_transmit_bytes_total",
    "rx_errors": "net_receive_errors_total",
    "tx_errors": "net_transmit_errors_total",
    "rx_dropped": "net_receive_drops_total",
    "tx_dropped": "net_transmit_drops_total",
}


def draw_network(network: NetworkReading, told: Told) -> Iterator[Sample]:
    """Every interface."""
    for link in network.interfaces.values():
        of_link = told.about(device=link.name)
        yield from of_link("net_up", link.has_carrier)
        yield from of_link("net_speed_bytes_per_second", link.speed_bytes_per_s)
        yield from of_link("net_carrier_losses_total", link.carrier_losses)
        yield from of_link("net_carrier_changes_total", link.carrier_changes)
        yield from of_link("net_mtu_bytes", link.mtu_bytes)
        for counter, name in NET_COUNTERS.items():
            yield from of_link(name, link.counters.get(counter))
        if link.is_physical:
            yield from _of_physical(link, network, of_link)


def _of_physical(link: Interface, network: NetworkReading, of_link: Told) -> Iterator[Sample]:
    yield from of_link("net_info", 1, driver=link.driver, pci=link.pci, roce_ecn=link.roce_ecn)
    if link.name in network.links:
        yield from of_link("net_link_flaps", len(network.links[link.name].flaps_s))
    for (what, direction, priority), frames in sorted(link.frames.items()):
        if what == "pause":
            yield from of_link("net_pause_frames_total", frames, prio=priority, direction=direction)
        else:
            yield from of_link("net_discards_total", frames, direction=direction)
