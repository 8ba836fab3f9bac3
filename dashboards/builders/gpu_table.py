"""Of nodes: every GPU in a row, with its identity and what it asks for."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.lights import bad_below
from builders.meanings import NO_YES, RECOVERY_ACTIONS, YES_NO
from builders.names import RANKS, Json
from builders.panel import Scale, Words
from builders.selecting import PER_GPU, node_gained, node_gauge, of_node
from builders.tables import Column, table

UNCORRECTED = 'error="uncorrected", scope="volatile"'


def every_gpu() -> Json:
    """One row for each, with its identity."""
    info = of_node("holdfast_gpu_info")
    up = node_gauge("holdfast_gpu_up", per=PER_GPU)
    identity = f"max by (cluster, run, node, gpu, uuid) ({info})"
    named = f"{up} * on (cluster, run, node, gpu) group_left (uuid) {identity}"
    words = Words(
        "Every GPU",
        "One row for each GPU of the chosen nodes, with its identity.",
        "*Asks for* is the driver's own wish and overrides every other judgement; a failed remap "
        "is a part to send back, a pending one wants a reset when it suits.",
        RANKS,
        ("run", "node"),
    )
    columns = [
        Column("Up", f"max by (cluster, run, node, gpu, uuid) ({named})", _words(YES_NO)),
        Column("Asks for", _gpu("holdfast_gpu_recovery_action_id"), _words(RECOVERY_ACTIONS)),
        Column("Busy", _gpu("holdfast_gpu_busy_ratio"), Scale("percentunit", decimals=0)),
        Column(
            "Tensor cores",
            _gpu("holdfast_gpu_tensor_active_ratio"),
            Scale("percentunit", decimals=0),
        ),
        Column("Clock", _gpu("holdfast_gpu_sm_clock_hertz"), Scale("hertz", decimals=2)),
        Column(
            "Margin", _gpu("holdfast_gpu_temperature_margin_celsius"), bad_below("celsius", 5, 2)
        ),
        Column("Power", _gpu("holdfast_gpu_power_watts"), Scale("watt", decimals=0)),
        Column("Memory", memory_share(), Scale("percentunit", decimals=0)),
        Column("Remap failed", _gpu("holdfast_gpu_row_remap_failure"), _words(NO_YES)),
        Column("Remap pending", _gpu("holdfast_gpu_row_remap_pending"), _words(NO_YES)),
        Column(
            "Uncorrected",
            _gpu("holdfast_gpu_ecc_errors_total", UNCORRECTED, gained=True),
            _errors(),
        ),
        Column("PCIe width", _width(), bad_below("percentunit", 1)),
    ]
    return table(words, ("node", "gpu", "uuid", "run", "cluster"), columns, "Asks for")


def memory_share() -> str:
    """Of each GPU's memory: what is in use."""
    used, size = (
        of_node("holdfast_gpu_memory_used_bytes"),
        of_node("holdfast_gpu_memory_size_bytes"),
    )
    return f"max {PER_GPU} ({used} / {size})"


def _gpu(metric: str, more: str = "", gained: bool = False) -> str:
    """One GPU's gauge, or what its counter gained in the time shown."""
    return node_gained(metric, PER_GPU, more) if gained else node_gauge(metric, more, PER_GPU)


def _width() -> str:
    now, could = (
        of_node("holdfast_gpu_pcie_link_width"),
        of_node("holdfast_gpu_pcie_link_width_max"),
    )
    return f"min {PER_GPU} ({now} / {could})"


def _errors() -> Scale:
    return Scale("none", decimals=0, steps=((None, GOOD), (0.5, BAD)))


def _words(mapping: Json) -> Scale:
    return Scale("none", words=(mapping,))
