"""What the kernel tells of the host: waiting, memory errors, heat, performance counters."""

from __future__ import annotations

from holdfast_sidecar.components.host.cpu import read_group, read_pressures
from holdfast_sidecar.components.host.memory import read_memory_errors
from holdfast_sidecar.components.host.readings import Group, MemoryErrors, Sensor
from holdfast_sidecar.components.host.thermal import read_sensors
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.linux.files import KernelTrees, read_if_any

UNIFIED = "cgroup.controllers"


def check_host(trees: KernelTrees) -> list[Check]:
    """Look at what /proc and /sys tell."""
    if not trees.proc.is_dir():
        line = f"there is no {trees.proc}: nothing is seen of this machine; set paths.machine_root"
        return [Check("machine root", FAIL, line)]
    return [
        judge_pressure(sorted(read_pressures(trees.proc / "pressure"))),
        judge_group(read_group(trees.proc, "self"), (trees.sys / "fs/cgroup" / UNIFIED).exists()),
        judge_memory_errors(read_memory_errors(trees.sys)),
        judge_sensors(read_sensors(trees.sys)),
        judge_perf(read_if_any(trees.proc / "sys/kernel/perf_event_paranoid").strip()),
    ]


def judge_pressure(resources: list[str]) -> Check:
    """How long tasks wait, and for what."""
    if "memory" in resources:
        return Check("pressure", OK, f"PSI tells how long tasks wait for {', '.join(resources)}")
    line = "no /proc/pressure: thrashing is not seen before the OOM killer; boot with psi=1"
    return Check("pressure", NOTE, line)


def judge_group(group: Group, is_unified: bool) -> Check:
    """Limits of the control group that a job started from here would be in."""
    version = f"version {2 if is_unified else 1}"
    if group.memory_used_bytes is None:
        line = f"{version}: its files can't be read: limits and OOM kills are not seen"
        return Check("cgroup", NOTE, line)
    limits = []
    if group.memory_limit_bytes is not None:
        limits.append(f"memory {group.memory_limit_bytes / 2**30:.3g} GiB")
    if group.cpu_limit is not None:
        limits.append(f"{group.cpu_limit:.3g} CPUs")
    told = f"{version}, limits: {', '.join(limits) or 'none'}"
    if group.cpu_limit is not None:
        line = f"{told}; ranks stand still whenever the CPU quota is used up: give whole CPUs"
        return Check("cgroup", NOTE, line)
    return Check("cgroup", OK, told)


def judge_memory_errors(errors: MemoryErrors | None) -> Check:
    """Whether failing memory shows before it kills."""
    if errors is None:
        line = (
            "not counted here: memory that begins to fail is not seen; a virtual machine has no "
            "controller, a host needs ECC and its EDAC driver (`modprobe`, see `dmesg | grep EDAC`)"
        )
        return Check("memory errors", NOTE, line)
    if errors.uncorrected:
        line = f"{errors.uncorrected} since boot could not be corrected: have the memory replaced"
        return Check("memory errors", WARN, line)
    corrected = "corrected ones are hidden"
    if errors.corrected is not None:
        corrected = f"{errors.corrected} corrected since boot"
    return Check("memory errors", OK, f"EDAC counts them: {corrected}")


def judge_sensors(sensors: tuple[Sensor, ...]) -> Check:
    """Whether heat is seen."""
    if not sensors:
        line = "no sensor tells a critical temperature: a hot host is seen only by its slow ranks"
        return Check("temperatures", NOTE, line)
    nearest = min(sensors, key=lambda sensor: sensor.margin)
    line = f"{len(sensors)} kinds; nearest to critical: {nearest.name}, by {nearest.margin:.0f} °C"
    return Check("temperatures", OK, line)


def judge_perf(paranoid: str) -> Check:
    """Holdfast does without; profilers that people reach for next do not."""
    if not paranoid.lstrip("-").isdecimal():
        return Check("perf counters", NOTE, "the kernel has none (or hides them)")
    if int(paranoid) <= 1:
        return Check("perf counters", OK, f"perf_event_paranoid = {paranoid}")
    line = (
        f"perf_event_paranoid = {paranoid}: `perf` shows ordinary users no time of the kernel; "
        "Holdfast does without; `sysctl kernel.perf_event_paranoid=1` allows it"
    )
    return Check("perf counters", NOTE, line)
