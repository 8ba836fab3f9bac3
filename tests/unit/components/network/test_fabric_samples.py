"""What the page says of RDMA ports whose drivers tell the same by two names."""

from __future__ import annotations

from tests.unit.export.picture import picture

from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.readings import FabricReading, Port, RdmaDevice
from holdfast_sidecar.export.exposition import draw


def test_a_driver_that_counts_bytes_by_two_names_makes_one_series() -> None:
    counters = {"port_rcv_data": 400, "rx_bytes": 404, "rx_pkts": 7}
    port = Port(RdmaDevice("bnxt_re0", "bnxt_re"), 1, "Ethernet", 4, 5, counters=counters)
    reading = MachineReading(fabric=FabricReading({port.name: port}))
    told = [
        (one.name.removeprefix("holdfast_rdma_"), one.value)
        for one in draw(picture(machine=reading), "job")
        if one.name.startswith("holdfast_rdma_receive")
    ]
    assert told == [("receive_bytes_total", 400), ("received_packets_total", 7)]
