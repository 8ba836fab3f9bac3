"""What can be seen of InfiniBand and RoCE ports, and of network interfaces."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast_sidecar.components.network.ethernet import read_all_counters
from holdfast_sidecar.components.network.rdma import Selection
from holdfast_sidecar.examination.check import NOTE, OK, WARN, Check
from holdfast_sidecar.linux.files import KernelTrees, list_names, read_if_any

ACTIVE = "4: ACTIVE"
ALL = Selection()
DOWN_BEFORE = (
    "one that is down when the sidecar starts is taken for a spare and not told: say how many"
    " should be active (fabric.ports)"
)
COUNTERS = ("counters", "hw_counters")


def check_fabric(trees: KernelTrees, selection: Selection = ALL, ports: int = 0) -> list[Check]:
    """Look at the fabric below /sys. `ports`: RDMA ports that settings want active."""
    return [
        check_rdma(trees.sys / "class/infiniband", selection, ports),
        check_interfaces(trees.sys / "class/net"),
    ]


def check_rdma(root: Path, selection: Selection = ALL, ports: int = 0) -> Check:
    """Ports seen, active, and with counters that may be read. Of a device that settings exclude
    nothing is opened."""
    found = [
        f"{root}/{device}/ports/{port}"
        for device in list_names(root)
        if selection.has(device)
        for port in list_names(f"{root}/{device}/ports")
    ]
    if not found:
        line = f"no device in {root}: fine without InfiniBand or RoCE; a container needs its /sys"
        return Check("InfiniBand", NOTE, line)
    active = sum(read_if_any(f"{port}/state").strip() == ACTIVE for port in found)
    told = f"{len(found)} ports, {active} of them active"
    blind = [port for port in found if not may_read_counters(port)]
    if blind:
        line = f"{told}; counters can't be read at {blind[0]}: errors of links are not seen"
        return Check("InfiniBand", WARN, line)
    if not active:
        return Check("InfiniBand", WARN, f"{told}: no traffic passes; see `ibstat`, cable, switch")
    if active < ports:
        return Check("InfiniBand", WARN, f"{told}, where fabric.ports wants {ports}")
    if not ports and active < len(found):
        return Check("InfiniBand", NOTE, f"{told}; {DOWN_BEFORE}")
    return Check("InfiniBand", OK, told)


def may_read_counters(port: str) -> bool:
    """Asked of their permissions alone: where a fabric manager owns the device, every counter that
    is read makes its firmware complain to the kernel's log. EFA has `hw_counters` only."""
    files = [f"{port}/{of}/{name}" for of in COUNTERS for name in list_names(f"{port}/{of}")[:1]]
    return bool(files) and all(os.access(file, os.R_OK) for file in files)


def tells_counters(interface: str) -> bool:
    """Whether its driver has counters of its own that may be read."""
    try:
        return bool(read_all_counters(interface))
    except OSError:
        return False


def check_interfaces(root: Path) -> Check:
    """Physical ones: those of a container have no device, and their loss is not seen inside."""
    physical = [name for name in list_names(root) if Path(f"{root}/{name}/device").exists()]
    if physical:
        told = f"{', '.join(physical)}: carrier, errors and drops are seen"
        silent = [name for name in physical if not tells_counters(name)]
        if silent:
            line = (
                f"{told}; ethtool tells no pause frames of {', '.join(silent)} (its driver's say)"
            )
            return Check("interfaces", NOTE, line)
        return Check("interfaces", OK, f"{told}, pause frames of ethtool too")
    line = (
        "none is physical: links that are lost are not seen from here; "
        "`hostNetwork: true` or `--network host` shows them"
    )
    return Check("interfaces", NOTE, line)
