"""Of nodes: lights, and what is found wrong."""

from __future__ import annotations

from builders.colours import BAD, GOOD
from builders.grid import Placed
from builders.lights import counted, noted
from builders.meanings import NO_YES
from builders.names import RANKS, RUN, SELF, Json
from builders.panel import Scale, Words
from builders.selecting import node_gauge, of_node, or_zero
from builders.tables import Column, table

EVERY_GPU = "by (cluster, node, gpu)"


def panels() -> list[Placed]:
    """Six lights, then findings and XIDs by name."""
    lit = [Placed(one, 4, 4) for one in (_unfit(), _findings(), *_of_gpus(), _links())]
    return [*lit, Placed(_found(), 12, 8), Placed(_xids(), 12, 8)]


def _unfit() -> Json:
    fit = node_gauge("holdfast_node_fit", how="min")
    words = Words(
        "Unfit nodes",
        "Nodes that the health gate would not let into an attempt.",
        "`holdfast nodes show NODE` says which check failed; `holdfast nodes test NODE` tries it.",
        RUN,
    )
    return counted(words, _how_many(f"{fit} == 0", fit))


def _findings() -> Json:
    words = Words(
        "Findings",
        "What is judged wrong now on the chosen nodes.",
        "The table below names them; those that *act* are sure enough to restart for.",
        RUN,
    )
    return noted(words, _in_all(of_node("holdfast_findings_active")))


def _of_gpus() -> list[Json]:
    expected = node_gauge("holdfast_node_gpus_expected")
    there = node_gauge("holdfast_node_gpus", how="min")
    lost = Words(
        "GPUs lost",
        "GPUs that should be there and do not answer. No data: nodes without GPUs.",
        "XID 79 in the table: it fell off the bus; the node needs a reboot, often a new part.",
        RANKS,
    )
    action = node_gauge("holdfast_gpu_recovery_action_id", per=EVERY_GPU)
    ill = Words(
        "GPUs to recover",
        "GPUs for which the driver itself asks for a reset, a reboot or more.",
        "The table *Every GPU* says which and what. The job is moved off it if a spare waits.",
        RUN,
    )
    reasons = 'reason=~"hardware_thermal|software_thermal|power_brake"'
    throttled = node_gauge("holdfast_gpu_throttled", reasons, EVERY_GPU)
    slowed = Words(
        "GPUs slowed down",
        "GPUs that are too hot, or braked by their power supply. The usual cap at full power is "
        "not counted.",
        "Air flow, a neighbour's fan, the rack's power; *Slowed down* below has the reasons.",
        RANKS,
    )
    return [
        counted(lost, f"sum(clamp_min({expected} - {there}, 0))"),
        counted(ill, _how_many(f"{action} > 0", action)),
        counted(slowed, _how_many(f"{throttled} == 1", throttled)),
    ]


def _links() -> Json:
    words = Words(
        "Links lost",
        "RDMA ports and interfaces that were up and are gone for good; unused ones don't count.",
        "A cable, an optic, the switch's port, or no subnet manager: *Fabric and network* below.",
        RUN,
    )
    return counted(words, _in_all(of_node("holdfast_findings_active", 'kind="link_down"')))


def _found() -> Json:
    active = f"max by (run, node, kind) ({of_node('holdfast_findings_active')})"
    acts = f"max by (run, node, kind) ({of_node('holdfast_finding_acts')})"
    words = Words(
        "What is found",
        "Findings that stand, by node and kind. Empty: none does.",
        "`holdfast status` has each in words; docs/nodes.md says what becomes of the node.",
        RUN,
        ("run",),
    )
    columns = [
        Column("Count", active, Scale("none", decimals=0)),
        Column("Acts", acts, Scale("none", words=(NO_YES,))),
    ]
    return table(words, ("node", "kind", "run"), columns, "Acts")


def _xids() -> Json:
    labels = "by (node, gpu, xid, remedy)"
    last = f"max {labels} ({of_node('holdfast_gpu_xid_last_timestamp_seconds')})"
    events = of_node("holdfast_gpu_xid_events_last_24h")
    often = f"{last} * 0 + on (node, gpu, xid) group_left () max by (node, gpu, xid) ({events})"
    words = Words(
        "XIDs",
        "Faults that NVIDIA's driver told of, the newest first, and what was judged to be needed. "
        "Empty: none.",
        "`restart_app` blames no machine. Anything else does: docs/xids.md has each number.",
        SELF,
        ("node",),
    )
    columns = [
        Column("Last", f"{last} * 1000", Scale("dateTimeAsIso")),
        Column("In 24 h", often, Scale("none", decimals=0, steps=((None, GOOD), (3, BAD)))),
    ]
    return table(words, ("node", "gpu", "xid", "remedy"), columns, "Last")


def _how_many(condition: str, known: str) -> str:
    """0 when none meets it, nothing when nothing is known."""
    return or_zero(f"count({condition})", f"count({known})")


def _in_all(findings: str) -> str:
    """0 when a sidecar tells of none."""
    return or_zero(f"sum({findings})", f"count({of_node('holdfast_sidecar_info')})")
