"""Of nodes: processors, memory, disks, clock."""

from __future__ import annotations

from builders.colours import BAD, GOOD, WATCH
from builders.grid import Placed
from builders.lines import Style, lines
from builders.names import RANKS, RUN, SELF, Json
from builders.panel import Scale, Words
from builders.query import over_time
from builders.selecting import PER_NODE, node_gained, node_gauge, node_rate, of_node

BY_NODE = "{{node}}"


def panels() -> list[Placed]:
    """What slows ranks, what kills them, what stops checkpoints, what makes times wrong."""
    made = (
        _pressure(),
        _cpus(),
        _memory(),
        _kills(),
        _rooms(),
        _mounts(),
        _clock(),
        _heat(),
    )
    return [Placed(one, 12, 8) for one in made]


def _pressure() -> Json:
    words = Words(
        "Stalled",
        "Share of time in which all tasks waited for a resource (PSI full), of the worst ten "
        "nodes and resources.",
        "Memory above 10 %: pinned buffers, caches, a leak. I/O above 30 %: loaders or a "
        "checkpoint on a slow disk.",
        RANKS,
        ("run", "node"),
    )
    stalled = node_rate(
        "holdfast_host_pressure_stalled_seconds_total", "by (cluster, run, node, resource)"
    )
    scale = Scale("percentunit", least=0, steps=((None, GOOD), (0.1, WATCH), (0.3, BAD)))
    query = over_time(f"topk(10, {stalled})", "{{node}}: {{resource}}")
    return lines(words, scale, [query], Style(limits=True))


def _cpus() -> Json:
    words = Words(
        "CPU taken away",
        "CPUs' worth of time that went to others than the job, and that the quota of the ranks' "
        "cgroup withheld; of the worst ten nodes.",
        "A neighbour on the machine, or a quota that is too small for loaders and NCCL's threads.",
        RANKS,
        ("run", "node"),
    )
    foreign = node_gauge("holdfast_host_foreign_cpus")
    throttled = node_rate("holdfast_host_cpu_throttled_seconds_total")
    queries = [
        over_time(f"topk(10, {foreign})", "{{node}}: others"),
        over_time(f"topk(10, {throttled} > 0)", "{{node}}: withheld"),
    ]
    return lines(words, Scale("suffix: CPUs", least=0), queries)


def _memory() -> Json:
    available = of_node("holdfast_host_memory_available_bytes")
    size = of_node("holdfast_host_memory_size_bytes")
    used, limit = (
        of_node("holdfast_host_memory_used_bytes"),
        of_node("holdfast_host_memory_limit_bytes"),
    )
    words = Words(
        "Host memory",
        "Of the fullest ten nodes: what is in use of the machine, and of the limit of the ranks' "
        "cgroup.",
        "From 95 % on the kernel kills a rank (exit code -9) before it says anything: fewer "
        "loader workers, or smaller prefetch.",
        RANKS,
        ("run", "node"),
    )
    scale = Scale("percentunit", least=0, most=1, steps=((None, GOOD), (0.9, WATCH), (0.95, BAD)))
    queries = [
        over_time(f"topk(10, max {PER_NODE} (1 - {available} / {size}))", "{{node}}: machine"),
        over_time(f"topk(10, max {PER_NODE} ({used} / {limit}))", "{{node}}: limit"),
    ]
    return lines(words, scale, queries, Style(limits=True))


def _kills() -> Json:
    words = Words(
        "Killed for memory, hung, memory errors",
        "In the time shown, by node: processes killed for memory, tasks that the kernel found "
        "hung, errors of the memory that could not be corrected.",
        "Killed: see *Host memory*. Hung: the driver or a network file system. Uncorrected errors: "
        "take the machine out (`holdfast node drain NODE`).",
        RUN,
        ("run", "node"),
    )
    told = {
        "killed": node_gained("holdfast_host_oom_kills_total"),
        "hung": node_gained("holdfast_host_hung_tasks_total"),
        "uncorrected": node_gained("holdfast_host_memory_errors_total", more='error="uncorrected"'),
    }
    queries = [over_time(f"{expr} > 0", f"{{{{node}}}}: {name}") for name, expr in told.items()]
    return lines(words, Scale("none", least=0, decimals=0), queries, Style(bars=True))


def _rooms() -> Json:
    free = of_node("holdfast_host_room_available_bytes")
    size = of_node("holdfast_host_room_size_bytes")
    words = Words(
        "Room left",
        "Of the file systems that the job uses (shared memory, state, checkpoints); the ten "
        "with least.",
        "Below 10 %: `holdfast checkpoint prune`, or more room, before a checkpoint fails. "
        "Shared memory: loaders die with a bus error.",
        RUN,
        ("run", "node"),
    )
    scale = Scale("percentunit", least=0, most=1, steps=((None, BAD), (0.1, WATCH), (0.25, GOOD)))
    left = f"bottomk(10, min by (cluster, run, node, room) ({free} / {size}))"
    return lines(words, scale, [over_time(left, "{{node}}: {{room}}")], Style(limits=True))


def _mounts() -> Json:
    words = Words(
        "Network file systems that do not answer",
        "Parts of the job whose file system is silent, by node, and requests a second that had "
        "to be sent again.",
        "All nodes: the server. One: its network. Training goes on; checkpoints do not.",
        RUN,
        ("run", "node"),
    )
    silent = f"count {PER_NODE} ({of_node('holdfast_storage_mount_up')} == 0)"
    known = f"count {PER_NODE} ({of_node('holdfast_storage_mount_up')})"
    again = node_rate("holdfast_storage_mount_timeouts_total")
    queries = [
        over_time(f"topk(10, {silent} or 0 * {known})", "{{node}}: silent"),
        over_time(f"topk(10, {again} > 0)", "{{node}}: sent again"),
    ]
    return lines(words, Scale("none", least=0), queries)


def _clock() -> Json:
    offset = of_node("holdfast_node_clock_offset_seconds")
    words = Words(
        "Clock",
        "How far each node's clock is from its time source; of the ten furthest.",
        "From a second on times in stories and alerts are wrong: mend chrony or NTP there.",
        SELF,
        ("run", "node"),
    )
    scale = Scale("s", least=0, steps=((None, GOOD), (0.1, WATCH), (1, BAD)))
    far = f"topk(10, max {PER_NODE} (abs({offset})))"
    return lines(words, scale, [over_time(far, BY_NODE)], Style(limits=True))


def _heat() -> Json:
    margin = node_gauge("holdfast_host_temperature_margin_celsius", how="min")
    words = Words(
        "Heat left in the host",
        "Degrees until the hottest part of each node's host is critical; of the ten hottest.",
        "Below 5: fans and air; the processor slows itself down first.",
        RANKS,
        ("run", "node"),
    )
    scale = Scale("celsius", steps=((None, BAD), (5, WATCH), (10, GOOD)))
    return lines(words, scale, [over_time(f"bottomk(10, {margin})", BY_NODE)], Style(limits=True))
