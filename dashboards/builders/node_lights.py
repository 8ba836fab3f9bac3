"""Of nodes: lights, and what is found wrong."""

from __future__ import annotations

from builders.colours import BAD, GOOD, WATCH
from builders.grid import Placed
from builders.lights import bad_from, light
from builders.meanings import NO_YES
from builders.names import RANKS, RUN, SELF, Json
from builders.panel import Scale, Words
from builders.query import now
from builders.selecting import node_gauge, of_node, or_zero
from builders.tables import Column, table


def panels() -> list[Placed]:
    """Six lights, then findings and XIDs by name."""
    made = (_unfit(), _findings(), _lost_gpus(), _hardware_xids(), _throttled(), _ports())
    return [*(Placed(one, 4, 4) for one in made), Placed(_found(), 12, 8), Placed(_xids(), 12, 8)]


def _unfit() -> Json:
    fit = node_gauge("holdfast_node_fit", how="min")
    words = Words(
        "Unfit nodes",
        "Nodes that the health gate would not let into an attempt.",
        "`holdfast nodes show NODE` says which check failed; `holdfast nodes test NODE` tries it.",
        RUN,
    )
    return light(words, bad_from("none", 1), [now(_counted(f"{fit} == 0", fit))])


def _findings() -> Json:
    found = f"sum({of_node('holdfast_findings_active')})"
    known = f"count({of_node('holdfast_sidecar_info')})"
    words = Words(
        "Findings",
        "What is judged wrong now on the chosen nodes.",
        "The table below names them; those that *act* are sure enough to restart for.",
        RUN,
    )
    scale = Scale("none", steps=((None, GOOD), (1, WATCH)))
    return light(words, scale, [now(or_zero(found, known))])


def _lost_gpus() -> Json:
    expected = node_gauge("holdfast_node_gpus_expected")
    there = node_gauge("holdfast_node_gpus", how="min")
    words = Words(
        "GPUs lost",
        "GPUs that should be there and do not answer. No data: nodes without GPUs.",
        "XID 79 in the table: it fell off the bus; the node needs a reboot, often a new part.",
        RANKS,
    )
    return light(words, bad_from("none", 1), [now(f"sum(clamp_min({expected} - {there}, 0))")])


def _hardware_xids() -> Json:
    action = node_gauge("holdfast_gpu_recovery_action_id", per="by (cluster, node, gpu)")
    words = Words(
        "GPUs to recover",
        "GPUs for which the driver itself asks for a reset, a reboot or more.",
        "The table *Every GPU* says which and what. The job is moved off it if a spare waits.",
        RUN,
    )
    return light(words, bad_from("none", 1), [now(_counted(f"{action} > 0", action))])


def _throttled() -> Json:
    reasons = 'reason=~"hardware_thermal|software_thermal|power_brake"'
    metric = of_node("holdfast_gpu_throttled", reasons)
    throttled = f"max by (cluster, node, gpu) ({metric})"
    words = Words(
        "GPUs slowed down",
        "GPUs that are too hot, or braked by their power supply. The usual cap at full power is "
        "not counted.",
        "Air flow, a neighbour's fan, the rack's power; *Slowed down* below has the reasons.",
        RANKS,
    )
    return light(words, bad_from("none", 1), [now(_counted(f"{throttled} == 1", throttled))])


def _ports() -> Json:
    lost = of_node("holdfast_findings_active", 'kind="link_down"')
    known = f"count({of_node('holdfast_sidecar_info')})"
    words = Words(
        "Links lost",
        "RDMA ports and interfaces that were up and are gone for good; unused ones don't count.",
        "A cable, an optic, the switch's port, or no subnet manager: *Fabric and network* below.",
        RUN,
    )
    return light(words, bad_from("none", 1), [now(or_zero(f"sum({lost})", known))])


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


def _counted(condition: str, known: str) -> str:
    """How many meet it; 0 when none does, nothing when nothing is known."""
    return or_zero(f"count({condition})", f"count({known})")
