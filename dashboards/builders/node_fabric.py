"""Of nodes: RDMA ports, interfaces, and the way to each other."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.grid import Placed
from builders.lights import bad_from
from builders.lines import Style, lines
from builders.meanings import PORT_STATES
from builders.names import RANKS, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import Query, over_time
from builders.rows_by_time import Heat, heat
from builders.selecting import PER_NODE, node_gauge, node_rate, of_node
from builders.tables import Column, table

PER_PORT = "by (cluster, run, node, device, port)"


def panels() -> list[Placed]:
    """Ports by name, traffic, what goes wrong, latency between nodes."""
    graphs = (_rdma(), _net(), _losses(), _congestion(), _down(), _round_trips())
    return [Placed(_ports(), 24, 9), *(Placed(one, 12, 8) for one in graphs)]


def _ports() -> Json:
    rate = node_gauge("holdfast_rdma_port_rate_bytes_per_second", per=PER_PORT)
    fastest = f"scalar(max({of_node('holdfast_rdma_port_rate_bytes_per_second')}))"
    words = Words(
        "RDMA ports",
        "One row for each port of the chosen nodes. Empty: none is there.",
        "Not active: cable, optic or the switch. Slower than the others: a link that was trained "
        "down, and a whole collective as slow. Flaps: replace the cable before it fails.",
        RUN,
        ("run",),
    )
    columns = [
        Column("State", node_gauge("holdfast_rdma_port_state_id", per=PER_PORT), _state()),
        Column("Rate", rate, Scale("Bps")),
        Column("Of the fastest", f"{rate} / {fastest}", _share()),
        Column(
            "Flaps in 12 h",
            node_gauge("holdfast_rdma_link_flaps", per=PER_PORT),
            bad_from("none", 3, 1),
        ),
    ]
    return table(words, ("node", "device", "port", "run"), columns, "Flaps in 12 h")


def _rdma() -> Json:
    words = Hint(
        "RDMA traffic",
        "Received by all ports of a node; the ten that receive most.",
        "Nothing at all while a run of several nodes trains: it hangs, or it "
        "uses another network than you think.",
        RANKS,
        ("run", "node"),
    )
    received = f"topk(10, {node_rate('holdfast_rdma_receive_bytes_total')})"
    return lines(words, Scale("Bps", least=0), [over_time(received, "{{node}}")])


def _net() -> Json:
    words = Hint(
        "Network traffic",
        "Received and sent by physical interfaces; the ten nodes with most.",
        "Checkpoints and data are here, and NCCL over sockets.",
        RANKS,
        ("run", "node"),
    )
    queries = [
        over_time(f"topk(10, {node_rate('holdfast_net_receive_bytes_total')})", "{{node}} in"),
        over_time(f"-topk(10, {node_rate('holdfast_net_transmit_bytes_total')})", "{{node}} out"),
    ]
    return lines(words, Scale("Bps"), queries)


def _losses() -> Json:
    words = Words(
        "Sent again, or lost",
        "A second, of the ten nodes with most of each: RDMA acknowledgements that timed out and "
        "sequence errors, frames in error, TCP segments sent again by ranks. Lines only where "
        "there are some.",
        "One node: its cable or port. Nodes of one leaf: the switch.",
        RANKS,
        ("run", "node"),
    )
    told = {
        "RDMA timeouts": "holdfast_rdma_local_ack_timeout_errors_total",
        "RDMA sequence errors": "holdfast_rdma_packet_sequence_errors_total",
        "frames in error": "holdfast_net_receive_errors_total",
        "TCP of ranks": "holdfast_rank_tcp_retransmits_total",
    }
    return lines(words, Scale("cps", least=0), _where_some(told), Style(bars=True))


def _congestion() -> Json:
    words = Hint(
        "Congestion",
        "A second, of the ten nodes with most of each: packets that switches marked, congestion "
        "notifications, pause frames.",
        "All nodes alike: the fabric is full. One: somebody else's traffic on its leaf.",
        RANKS,
        ("run", "node"),
    )
    told = {
        "marked": "holdfast_rdma_ecn_marked_packets_total",
        "notifications": "holdfast_rdma_cnp_total",
        "pause frames": "holdfast_net_pause_frames_total",
    }
    return lines(words, Scale("pps", least=0), _where_some(told))


def _down() -> Json:
    down = f"count {PER_NODE} ({of_node('holdfast_net_up')} == 0)"
    known = f"count {PER_NODE} ({of_node('holdfast_net_up')})"
    words = Words(
        "Interfaces without carrier",
        "Physical interfaces that are down, of the ten nodes with most. Unused ports count, too: "
        "look for change.",
        "A step up: a cable or a switch port went; `holdfast status` names the interface.",
        RUN,
        ("run", "node"),
    )
    query = over_time(f"topk(10, {down} or 0 * {known})", "{{node}}")
    limits = ((None, GOOD), (1, BAD))
    return lines(words, Scale("none", least=0, steps=limits), [query], Style(limits=True))


def _round_trips() -> Json:
    words = Words(
        "Round trips between nodes",
        "From each node to the others: the slowest way; 5 ms are as bright as it gets.",
        "A bright row: all ways of that node are slow, so its own link or host.",
        RANKS,
        ("run", "node"),
    )
    slowest = node_gauge("holdfast_node_peer_rtt_seconds")
    query = over_time(slowest, "{{node}}")
    return heat(words, Scale("s", least=0), [query], Heat(0, 0.005, "Inferno"))


def _where_some(told: dict[str, str]) -> list[Query]:
    return [
        over_time(f"topk(10, {node_rate(metric)} > 0)", f"{{{{node}}}}: {name}")
        for name, metric in told.items()
    ]


def _state() -> Scale:
    return Scale("none", words=(PORT_STATES,))


def _share() -> Scale:
    return Scale("percentunit", decimals=0, steps=((None, BAD), (0.99, GOOD)))
