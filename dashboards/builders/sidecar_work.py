"""Of the sidecars: their rounds, their price, what they did."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.grid import Placed
from builders.lines import Style, lines, one_line
from builders.names import NODE, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import over_time
from builders.selecting import node_gauge, node_rate, of_node

BY_NODE = "{{node}}"
OF_NODE = (NODE, ("run", "node"))
"""Where a click on a node's line leads."""


def panels() -> list[Placed]:
    """Rounds, processor, memory, series; probes, the driver, actions."""
    made = (*_worst(), _probes(), _driver(), _stuck(), _actions())
    return [Placed(one, 8, 7) for one in made]


def _worst() -> list[Json]:
    """What the ten sidecars that are worst at it need."""
    spent = node_rate("holdfast_sidecar_tick_seconds_total")
    rounds = node_rate("holdfast_sidecar_ticks_total")
    round_takes = Hint(
        "A round takes",
        "Read, judge, act, tell: the mean round of the ten slowest sidecars.",
        "Near `sidecar.tick_s` it can't keep up: a probe below is slow, or the "
        "machine has no processor to spare.",
        *OF_NODE,
    )
    processor = Hint(
        "Processor of the sidecars",
        "CPUs' worth; the ten that use most.",
        "Some percent of one CPU is usual; it grows with ranks and GPUs of the node.",
        *OF_NODE,
    )
    memory = Hint(
        "Memory of the sidecars",
        "Resident; the ten that hold most.",
        "Growing for days: please report it, with `holdfast_rank_*` series' number.",
        *OF_NODE,
    )
    series = Hint(
        "Series",
        "That Prometheus takes from each sidecar at a scrape; the ten with most.",
        "A leader has the whole job's besides its own.",
        NODE,
    )
    scrapes = Hint(
        "A scrape takes",
        "As Prometheus measures it; the ten slowest.",
        "Seconds: the node has no processor to spare, or the network is slow.",
        NODE,
    )
    told = (
        (round_takes, "s", f"{spent} / {rounds}"),
        (processor, "percentunit", node_rate("holdfast_sidecar_cpu_seconds_total")),
        (memory, "bytes", node_gauge("holdfast_sidecar_resident_memory_bytes")),
        (series, "none", node_gauge("scrape_samples_scraped")),
        (scrapes, "s", node_gauge("scrape_duration_seconds")),
    )
    return [one_line(words, unit, f"topk(10, {expr})", BY_NODE) for words, unit, expr in told]


def _probes() -> Json:
    words = Hint(
        "A probe takes",
        "The newest reading of each probe, on the slowest node.",
        "Seconds of `gpu`: the driver hesitates; of `fabric`: a device that answers late.",
        NODE,
    )
    took = f"max by (probe) ({of_node('holdfast_probe_duration_seconds')})"
    return one_line(words, "s", took, "{{probe}}")


def _driver() -> Json:
    words = Hint(
        "The GPU driver's answers",
        "What a reading of all GPUs takes on the ten slowest nodes.",
        "Seconds: it hesitates, mostly over one ill GPU.",
        *OF_NODE,
    )
    took = node_gauge("holdfast_gpu_reading_duration_seconds")
    return one_line(words, "s", f"topk(10, {took})", BY_NODE)


def _stuck() -> Json:
    words = Words(
        "Hanging in the driver",
        "Child processes that asked the driver, got no answer and can't be killed, by node.",
        "The node needs a reboot; its ranks may go on until then. Everything about its GPUs is "
        "old or absent.",
        *OF_NODE,
    )
    stuck = node_gauge("holdfast_nvml_stuck_children", how="sum")
    scale = Scale("none", least=0, steps=((None, GOOD), (1, BAD)))
    return lines(words, scale, [over_time(f"topk(10, {stuck})", BY_NODE)], Style(limits=True))


def _actions() -> Json:
    words = Hint(
        "Actions",
        "What sidecars did, a second, by action and outcome.",
        "`failed`: the sidecar's log has the reason.",
        RUN,
    )
    done = node_rate("holdfast_actions_total", "by (action, outcome)")
    query = over_time(f"{done} > 0", "{{action}}: {{outcome}}")
    return lines(words, Scale("ops", least=0), [query], Style(bars=True))
