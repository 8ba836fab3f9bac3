"""What NVML lets us see of the GPUs, and why not the rest. A wedged driver does not hold us up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.contract import switches
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child
from holdfast_sidecar.cli.doctor import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.components.gpu.nvml.gpm import METRICS
from holdfast_sidecar.components.gpu.nvml.wire import parse_reading
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.network.ethernet import read_all_counters
from holdfast_sidecar.components.network.rdma import Selection
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.linux.files import KernelTrees, list_names, read_if_any

CHILD = (sys.executable, "-m", "holdfast_sidecar.cli.doctor.nvml_child")

DEADLINE_S = 10.0
"""A driver that nothing keeps loaded takes 1 to 3 s with eight GPUs to come up (persistence mode
spares it that); one that needs longer has another trouble."""

MOST_NAMED = 8

BEGUN = "asking"
"""The child's first line: it has all it needs of its own, the rest is up to the driver."""

OF_ACTIVITY = frozenset(signal.value for signal in METRICS)

IsOn = Callable[[Settings, Mapping[str, str]], bool]


class Untried(NamedTuple):
    """Something that only matters on a GPU and was only ever run on stand-ins for one."""

    what: str
    is_on: IsOn
    switch: str
    """What turns it off, or on where it is off by default."""


def _hook(name: str) -> IsOn:
    return lambda _, environ: switches.is_on(name, environ)


UNTRIED = (
    Untried("snapshots", lambda s, _: s.snapshot.every_steps >= 0, "snapshot.every_steps=-1"),
    Untried("CUDA events, allocator", _hook("devices"), "HOLDFAST_HOOKS=-devices"),
    Untried("losses on the GPU", _hook("backward"), "HOLDFAST_HOOKS=-backward"),
    Untried("gradient norms on the GPU", _hook("gradients"), "HOLDFAST_HOOKS=-gradients"),
    Untried("transfers", _hook("transfers"), "HOLDFAST_HOOKS=+transfers"),
    Untried("flight recorder", lambda s, _: s.stall.flight_recorder, "stall.flight_recorder=false"),
    Untried(
        "acting on NCCL's numbers",
        lambda s, _: s.stall.nccl_act_after_s > 0,
        "stall.nccl_act_after_s",
    ),
    Untried("NVML", lambda s, _: s.gpu.enabled, "gpu.enabled=false"),
)
"""One by one, as docs/harmless.md has them. What runs on request alone is said only there."""


@dataclass(frozen=True)
class SeenGpu:
    """What one GPU keeps from us. `refused`: reasons by signal."""

    lost: str
    refused: Mapping[str, str]
    events: str


@dataclass(frozen=True)
class Driver:
    """What the child said. `trouble`: why it said nothing; `error`: the driver's own."""

    gpus: tuple[SeenGpu, ...] = ()
    versions: str = ""
    error: str = ""
    trouble: str = ""
    was_asked: bool = True
    """False: the child did not come so far, which says nothing of the driver."""
    reading: GpuReading | None = None
    """As the GPU probe would have it; None: it could not be read."""


def ask(child: Sequence[str] = CHILD, deadline_s: float = DEADLINE_S) -> Driver:
    """Run the child. One that is stuck in the kernel can't be ended: it is left behind."""
    try:
        asked = subprocess.Popen(child, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        return Driver(trouble=str(error), was_asked=False)
    try:
        said, complaint = asked.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired as late:
        signal_child(own_child(asked))
        if not (late.stdout or b"").startswith(BEGUN.encode()):
            return Driver(trouble=f"no process began within {deadline_s:g} s", was_asked=False)
        return Driver(trouble=f"does not answer within {deadline_s:g} s")
    begun, _, told = said.decode(errors="replace").partition("\n")
    try:
        return parse(json.loads(told))
    except (AttributeError, KeyError, TypeError, ValueError):
        last = (complaint.decode(errors="replace").strip().splitlines() or [""])[-1]
        trouble = f"the process that asks it ended: {last or f'exit code {asked.returncode}'}"
        return Driver(trouble=trouble, was_asked=begun == BEGUN)


def parse(told: Any) -> Driver:
    """The child's words. Raises where they are no such words."""
    if not told:
        return Driver(reading=GpuReading(is_present=False))
    if "error" in told:
        return Driver(error=str(told["error"]))
    gpus = (SeenGpu(str(g["lost"]), dict(g["refused"]), str(g["events"])) for g in told["gpus"])
    versions = f"driver {told['driver']}, NVML {told['library']}"
    return Driver(tuple(gpus), versions, reading=parse_reading(told["reading"]))


def judge_driver(driver: Driver) -> list[Check]:
    """One check of the driver, and one for each thing that GPUs may refuse."""
    if not driver.was_asked:
        line = f"{driver.trouble}: the driver was not asked at all; see `pip check`"
        return [Check("NVML", FAIL, line)]
    if driver.trouble:
        line = f"{driver.trouble}: the driver is wedged or broken; see `dmesg`, reset or reboot"
        return [Check("NVML", FAIL, line)]
    if driver.error:
        line = f"{driver.error}: no GPU can be watched, and likely none be used"
        return [Check("NVML", FAIL, line)]
    if not driver.versions:
        line = (
            "no NVIDIA driver: fine without GPUs; a container needs `--gpus all`, and "
            "NVIDIA_DRIVER_CAPABILITIES with `utility` in it"
        )
        return [Check("NVML", NOTE, line)]
    seen = [gpu for gpu in driver.gpus if not gpu.lost]
    told = f"{driver.versions}, {len(driver.gpus)} GPU{'s' * (len(driver.gpus) != 1)}"
    lost = [
        Check("NVML", FAIL, f"GPU {index} does not answer: {gpu.lost}; it needs a reset")
        for index, gpu in enumerate(driver.gpus)
        if gpu.lost
    ]
    found = [Check("NVML", OK if driver.gpus else WARN, told), *lost]
    return [*found, judge_signals(seen), judge_gpm(seen), judge_events(seen)] if seen else found


def judge_untried(driver: Driver, settings: Settings, environ: Mapping[str, str]) -> list[Check]:
    """Where there are GPUs: what was never run on any, and whether it will be here."""
    if not driver.gpus:
        return []
    known = [(one, one.is_on(settings, environ)) for one in UNTRIED]
    return [
        Check(
            f"untried: {one.what}",
            NOTE,
            f"never run on a GPU, and on: {one.switch} turns it off"
            if is_on
            else f"never run on a GPU, and off (see {one.switch})",
        )
        for one, is_on in known
    ]


def judge_signals(gpus: Sequence[SeenGpu]) -> Check:
    """Numbers that some GPU does not tell, by reason."""
    reasons: dict[str, dict[str, None]] = {}
    for gpu in gpus:
        for signal, why in gpu.refused.items():
            if signal not in OF_ACTIVITY:
                reasons.setdefault(why.rpartition(": ")[2], {})[signal] = None
    if not reasons:
        return Check("GPU signals", OK, "all that is asked for is told")
    told = "; ".join(f"{why}: {_some(signals)}" for why, signals in reasons.items())
    verdict = NOTE if any("ermission" in why for why in reasons) else OK
    return Check("GPU signals", verdict, f"not told, and left out of metrics: {told}")


def judge_gpm(gpus: Sequence[SeenGpu]) -> Check:
    """Whether a GPU that is said to be busy does anything."""
    whys = [why for gpu in gpus for name, why in gpu.refused.items() if name in OF_ACTIVITY]
    if not whys:
        return Check("GPM", OK, "activity of SMs, tensor cores and memory is seen")
    mend = (
        "`--cap-add SYS_ADMIN`, or NVreg_RestrictProfilingToAdminUsers=0 for the driver"
        if "ermission" in whys[0]
        else "it needs Hopper or later"
    )
    line = f"{whys[0]}: a GPU that spins in a collective looks as busy as one that computes; {mend}"
    return Check("GPM", NOTE, line)


def judge_events(gpus: Sequence[SeenGpu]) -> Check:
    """Whether the driver itself tells of faults."""
    whys = [gpu.events for gpu in gpus if gpu.events]
    if not whys:
        return Check("XID events", OK, "the driver tells of faults at once")
    line = f"{whys[0]}: faults of GPUs are seen only in the kernel's log, where that may be read"
    return Check("XID events", NOTE, line)


def _some(signals: Iterable[str]) -> str:
    names = list(signals)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# What can be seen of InfiniBand and RoCE ports, and of network interfaces.

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
