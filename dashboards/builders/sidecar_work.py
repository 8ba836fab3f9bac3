"""Of the sidecars: their rounds, their price, what they did."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.grid import Placed
from builders.lines import Style, lines
from builders.names import NODE, RUN, Json
from builders.panel import Hint, Scale, Words
from builders.query import over_time
from builders.selecting import node_gauge, node_rate, of_node

BY_NODE = "{{node}}"


def panels() -> list[Placed]:
    """Rounds, processor, memory, series; probes, the driver, actions."""
    made = (
        _rounds(),
        _processor(),
        _memory(),
        _series(),
        _scrapes(),
        _probes(),
        _driver(),
        _stuck(),
        _actions(),
    )
    return [Placed(one, 8, 7) for one in made]


def _rounds() -> Json:
    spent = node_rate("holdfast_sidecar_tick_seconds_total")
    rounds = node_rate("holdfast_sidecar_ticks_total")
    words = Hint(
        "A round takes",
        "Read, judge, act, tell: the mean round of the ten slowest sidecars.",
        "Near `sidecar.tick_s` it can't keep up: a probe below is slow, or the "
        "machine has no processor to spare.",
        NODE,
        ("run", "node"),
    )
    return lines(words, Scale("s", least=0), [over_time(f"topk(10, {spent} / {rounds})", BY_NODE)])


def _processor() -> Json:
    words = Hint(
        "Processor of the sidecars",
        "CPUs' worth; the ten that use most.",
        "Some percent of one CPU is usual; it grows with ranks and GPUs of the node.",
        NODE,
        ("run", "node"),
    )
    used = node_rate("holdfast_sidecar_cpu_seconds_total")
    return lines(words, Scale("percentunit", least=0), [over_time(f"topk(10, {used})", BY_NODE)])


def _memory() -> Json:
    words = Hint(
        "Memory of the sidecars",
        "Resident; the ten that hold most.",
        "Growing for days: please report it, with `holdfast_rank_*` series' number.",
        NODE,
        ("run", "node"),
    )
    held = node_gauge("holdfast_sidecar_resident_memory_bytes")
    return lines(words, Scale("bytes", least=0), [over_time(f"topk(10, {held})", BY_NODE)])


def _series() -> Json:
    words = Hint(
        "Series",
        "That Prometheus takes from each sidecar at a scrape; the ten with most.",
        "A leader has the whole job's besides its own.",
        NODE,
    )
    taken = f"topk(10, max by (cluster, run, node) ({of_node('scrape_samples_scraped')}))"
    return lines(words, Scale("none", least=0), [over_time(taken, BY_NODE)])


def _scrapes() -> Json:
    words = Hint(
        "A scrape takes",
        "As Prometheus measures it; the ten slowest.",
        "Seconds: the node has no processor to spare, or the network is slow.",
        NODE,
    )
    took = f"topk(10, max by (cluster, run, node) ({of_node('scrape_duration_seconds')}))"
    return lines(words, Scale("s", least=0), [over_time(took, BY_NODE)])


def _probes() -> Json:
    words = Hint(
        "A probe takes",
        "The newest reading of each probe, on the slowest node.",
        "Seconds of `gpu`: the driver hesitates; of `fabric`: a device that answers late.",
        NODE,
    )
    took = f"max by (probe) ({of_node('holdfast_probe_duration_seconds')})"
    return lines(words, Scale("s", least=0), [over_time(took, "{{probe}}")])


def _driver() -> Json:
    words = Hint(
        "The GPU driver's answers",
        "What a reading of all GPUs takes on the ten slowest nodes.",
        "Seconds: it hesitates, mostly over one ill GPU.",
        NODE,
        ("run", "node"),
    )
    took = f"topk(10, {node_gauge('holdfast_gpu_reading_duration_seconds')})"
    return lines(words, Scale("s", least=0), [over_time(took, BY_NODE)])


def _stuck() -> Json:
    words = Words(
        "Hanging in the driver",
        "Child processes that asked the driver, got no answer and can't be killed, by node.",
        "The node needs a reboot; its ranks may go on until then. Everything about its GPUs is "
        "old or absent.",
        NODE,
        ("run", "node"),
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
