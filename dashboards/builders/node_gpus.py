"""Of nodes: their GPUs, each in a row, and what wears them out."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.gpu_table import UNCORRECTED, every_gpu, memory_share
from builders.grid import Placed
from builders.lines import Style, lines, one_line
from builders.names import RANKS, Json
from builders.panel import Hint, Scale, Words
from builders.query import over_time
from builders.rows_by_time import Heat, heat
from builders.selecting import PER_RUN, node_gauge, node_rate, of_node

BY_NODE = "{{node}}"

CORRECTED = 'error="corrected", scope="volatile"'


def panels() -> list[Placed]:
    """All of them in a table, then clocks, heat, power, errors, links."""
    graphs = (
        _clocks(),
        _margin(),
        _busy(),
        _power(),
        _slowed(),
        _memory(),
        _retries(),
        _ecc(),
        _links(),
    )
    return [Placed(every_gpu(), 24, 10), *(Placed(one, 8, 8) for one in graphs)]


def _clocks() -> Json:
    clock = of_node("holdfast_gpu_sm_clock_hertz")
    against = f"{clock} / on (cluster, run) group_left () quantile {PER_RUN} (0.5, {clock})"
    words = Words(
        "Slowest clock of each node",
        "Its slowest GPU's clock against the median of the chosen nodes: dark is slower.",
        "One dark row without any XID: a straggler that only shows here. Check heat and power "
        "limits of that machine.",
        RANKS,
        ("run", "node"),
    )
    query = over_time(f"min by (cluster, run, node) ({against})", BY_NODE)
    return heat(words, Scale("percentunit", least=0), [query], Heat(0.6, 1, "Viridis"))


def _margin() -> Json:
    words = Words(
        "Heat of each node",
        "Degrees that are left to its hottest GPU until it slows itself down, whichever model it "
        "is; bright is close to none.",
        "Single bright rows: that machine's air. A block of rows: the rack's or the room's.",
        RANKS,
        ("run", "node"),
    )
    margin = node_gauge("holdfast_gpu_temperature_margin_celsius", how="min")
    scheme = Heat(0, 40, "Inferno", is_turned=True)
    return heat(words, Scale("celsius"), [over_time(margin, BY_NODE)], scheme)


def _busy() -> Json:
    words = Words(
        "Busy, and computing",
        "The least of each node: share of time a kernel ran, and share of time the tensor cores "
        "worked.",
        "Busy near 100 % and tensor cores near 0 for minutes: NCCL waits in a spinning kernel, "
        "the job hangs. Both near 0: allocated and idle.",
        RANKS,
        ("run", "node"),
    )
    told = {
        "busy": "holdfast_gpu_busy_ratio",
        "tensor cores": "holdfast_gpu_tensor_active_ratio",
    }
    queries = [
        over_time(_least_ten(metric), f"{{{{node}}}}: {name}") for name, metric in told.items()
    ]
    return lines(words, Scale("percentunit", least=0, most=1), queries)


def _power() -> Json:
    words = Hint(
        "Power",
        "Of each node's GPUs together; the ten that draw most.",
        "One node far below the others while training: throttled, or idle ranks.",
        RANKS,
        ("run", "node"),
    )
    power = node_gauge("holdfast_gpu_power_watts", how="sum")
    return one_line(words, "watt", f"topk(10, {power})", BY_NODE)


def _slowed() -> Json:
    words = Words(
        "Slowed down",
        "Share of time in which GPUs of the chosen nodes were slowed down, added up over them, "
        "by reason.",
        "`power_cap` is usual at full load. Thermal: air. `power_brake`: the supply, at once.",
        RANKS,
    )
    slowed = node_rate("holdfast_gpu_throttle_seconds_total", "by (reason)")
    style = Style("normal")
    return lines(words, Scale("percentunit", least=0), [over_time(slowed, "{{reason}}")], style)


def _memory() -> Json:
    words = Words(
        "GPU memory",
        "The fullest GPU of each node, of the ten fullest.",
        "Near 100 % with retries of the allocator: fragmentation, an out-of-memory error is near.",
        RANKS,
        ("run", "node"),
    )
    full = f"topk(10, max by (cluster, run, node) ({memory_share()}))"
    return lines(words, Scale("percentunit", least=0, most=1), [over_time(full, BY_NODE)])


def _retries() -> Json:
    words = Hint(
        "Retries of the allocator",
        "Times a second that torch had to give memory back before it found room, by node.",
        "Steadily above 0: smaller batches, or PYTORCH_CUDA_ALLOC_CONF.",
        RANKS,
        ("run", "node"),
    )
    retries = node_rate("holdfast_rank_device_memory_retries_total")
    return lines(words, Scale("cps", least=0), [over_time(retries, BY_NODE)], Style(bars=True))


def _ecc() -> Json:
    words = Words(
        "Memory errors",
        "ECC errors a second on each node: corrected ones, and those that could not be.",
        "Any uncorrected: results since the last good checkpoint are suspect. Corrected ones by "
        "the second: the part fails soon.",
        RANKS,
        ("run", "node"),
    )
    queries = [
        over_time(
            f"{node_rate('holdfast_gpu_ecc_errors_total', more=CORRECTED)} > 0",
            "{{node}}: corrected",
        ),
        over_time(
            f"{node_rate('holdfast_gpu_ecc_errors_total', more=UNCORRECTED)} > 0",
            "{{node}}: uncorrected",
        ),
    ]
    return lines(words, Scale("cps", least=0), queries, Style(bars=True))


def _links() -> Json:
    missing = (
        f"sum by (cluster, run, node) ({of_node('holdfast_gpu_nvlinks_expected')}"
        f" - {of_node('holdfast_gpu_nvlinks_active')})"
    )
    words = Words(
        "NVLinks missing, and errors",
        "Links that should be up and are not, and link errors a second, by node.",
        "A missing link slows or fails collectives: reset the GPUs when the node is out of the "
        "job.",
        RANKS,
        ("run", "node"),
    )
    errors = node_rate("holdfast_gpu_nvlink_errors_total")
    queries = [
        over_time(f"{missing} > 0", "{{node}}: missing"),
        over_time(f"{errors} > 0", "{{node}}: errors a second"),
    ]
    limits = ((None, GOOD), (1, BAD))
    return lines(words, Scale("none", least=0, steps=limits), queries, Style(limits=True))


def _least_ten(metric: str) -> str:
    return f"bottomk(10, {node_gauge(metric, how='min')})"
