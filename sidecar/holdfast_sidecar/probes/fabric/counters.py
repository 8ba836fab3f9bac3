"""Which counters of an RDMA port are read, and how their files are to be understood.

The names are the kernel's; paths under `/sys/class/infiniband/<device>/ports/<port>/`.
"""

from __future__ import annotations

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
"""Error counters whose way is followed; `detectors/drift.py` says what is too much."""


def parse_counter(name: str, text: str) -> int | None:
    """A counter's file; None for what is none (`N/A (no PMA)`, garbage, below 0, saturated)."""
    word = text.split(None, 1)[0] if text.strip() else ""
    if not word.isascii() or not word.isdecimal():
        return None
    value = int(word)
    if value == SATURATED and name in CAN_SATURATE:
        return None
    return value * WORD_BYTES if name in IN_WORDS else value
