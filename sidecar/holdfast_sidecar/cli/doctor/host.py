"""What the kernel tells of the host: waiting, memory errors, heat, performance counters."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import resource
from pathlib import Path

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child
from holdfast_sidecar.checkpoint.snapshot.slots import RoomReader
from holdfast_sidecar.cli.doctor import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.components.host.clock import UNSYNCHRONISED, read_clock
from holdfast_sidecar.components.host.cpu import read_group, read_pressures
from holdfast_sidecar.components.host.memory import read_memory_errors
from holdfast_sidecar.components.host.readings import CgroupReading, MemoryErrors, Sensor
from holdfast_sidecar.components.host.thermal import read_sensors
from holdfast_sidecar.config.settings import Settings, SnapshotSettings
from holdfast_sidecar.linux.files import KernelTrees, read_if_any
from holdfast_sidecar.linux.kmsg import open_log
from holdfast_sidecar.policy.replication import SnapshotSpace, gigabytes
from holdfast_sidecar.ranks.stacks import find_spy

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


def judge_group(group: CgroupReading, is_unified: bool) -> Check:
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


# How much memory snapshots may take here.

LITTLE_BYTES = 10**9
"""Two slots for a model of some forty million parameters with its optimizer's state: jobs that are
worth protecting need more."""


def check_memory(settings: Settings) -> list[Check]:
    """Look at shared memory, memory and control groups."""
    paths = settings.paths
    reader = RoomReader(Path(paths.shm_dir), paths.shm_reserve_bytes)
    try:
        in_files = reader.read(0)
    except OSError:
        return []  # a shared-memory directory that can't be read is named by another check
    room = dataclasses.replace(in_files, shared_memory=None)
    check = judge_memory(settings.snapshot, room)
    allowed = int(in_files.least * settings.snapshot.memory_share)
    if check.verdict == OK and allowed < LITTLE_BYTES:
        more = f"; with a sidecar of its own {gigabytes(allowed)}, as {paths.shm_dir} is small"
        check = dataclasses.replace(check, line=check.line + more)
    return [check]


def judge_memory(settings: SnapshotSettings, room: SnapshotSpace) -> Check:
    """Less than any model needs is worth a warning: the job would run without, and say so late."""
    if settings.every_steps < 0:
        return Check("snapshots", NOTE, "off (snapshot.every_steps = -1)")
    allowed = int(room.least * settings.memory_share)
    line = (
        f"{gigabytes(allowed)} may be taken ({settings.memory_share:.0%} of what is free), for "
        f"{settings.slots} copies of the state of all ranks"
    )
    if allowed >= LITTLE_BYTES:
        return Check("snapshots", OK, line)
    mend = "enlarge it (docker --shm-size)" if room.bound_by == "shared_memory" else "free some"
    what = "shared memory" if room.bound_by == "shared_memory" else "memory"
    return Check("snapshots", WARN, f"{line}; {what} is short: {mend}")


# Which processes are seen from here: the machine's, a pod's, or those of one container.

WHAT = "processes"

FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the machine's own this number (PROC_PID_INIT_INO in proc_ns.h)."""

POD_KEEPER = "pause"
"""The first process of a pod whose containers share their processes."""


def check_processes(proc: Path = Path("/proc")) -> Check:
    """Look at this process's own namespace and at the first process in it."""
    try:
        namespace = os.readlink(proc / "self/ns/pid")  # noqa: PTH115 - no path, but a number
    except OSError:
        return Check(WHAT, NOTE, "which of them are seen from here can't be read")
    first = read_if_any(proc / "1/comm").strip()
    return judge_processes(namespace == FIRST_NAMESPACE, first)


SHELLS = ("sh", "bash", "dash", "ash", "zsh", "busybox")


def check_first_process(proc: Path = Path("/proc")) -> list[Check]:
    """Look at what a container's stop reaches."""
    return judge_first_process(read_if_any(proc / "1/comm").strip())


def judge_first_process(first: str) -> list[Check]:
    """Only process 1 of a container gets its SIGTERM, and a shell there passes none on."""
    if first not in SHELLS:
        return []
    line = (
        f"process 1 is a shell ({first}), which passes no SIGTERM on: a launcher below it is "
        "killed without having saved; begin its command with `exec`, or use no shell"
    )
    return [Check("process 1", WARN, line)]


def judge_processes(is_machine: bool, first: str) -> Check:
    """A rank that is not seen is known by its page alone."""
    if is_machine:
        return Check(WHAT, OK, "those of the whole machine are seen")
    if first == POD_KEEPER:
        return Check(WHAT, OK, "those of all containers of this pod are seen")
    line = (
        "only those of this container are seen: of ranks in another one a sidecar reads the pages, "
        "not their state, stacks and exits, and can't end one that hangs; nothing is lost where "
        "`holdfast run` starts the ranks here; `shareProcessNamespace: true` shows a pod's"
    )
    return Check(WHAT, NOTE, line)


# Whether processes of our own may be traced at all: tried, since many things may forbid it.

ATTACH = 0x4206
"""PTRACE_SEIZE: it stops nobody."""


def may_trace_children() -> bool | None:
    """Tried on a child that does nothing else. A container's seccomp profile refuses what the
    kernel's own settings allow. None where it can't be tried."""
    ends, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.read(ends, 1)  # until the parent lets go of the other end, or is gone
        os._exit(0)
    os.close(ends)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.ptrace(ATTACH, child, None, None)) == 0
    except (AttributeError, OSError):
        return None
    finally:
        signal_child(own_child(child))
        os.close(held)
        os.waitpid(child, 0)


# The kernel's rules: whom we may trace, how much we may open, how deaths and time are told.

PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")

FEW_FILES = 4096
"""A rank with 8 DataLoader workers and gloo to 64 peers holds several hundred; 1,024 breaks."""


def check_machine(trees: KernelTrees) -> list[Check]:
    """Look at this machine's kernel and limits."""
    return [
        check_processes(),
        *check_first_process(),
        judge_pidfd(_has_pidfd()),
        judge_ptrace(_read_ptrace_scope(), os.geteuid() == 0, may_trace_children()),
        judge_py_spy(find_spy()),
        judge_kernel_log(_may_read(trees.kernel_log)),
        judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        judge_core_dumps(resource.getrlimit(resource.RLIMIT_CORE)[0]),
        judge_clock(_read_clock_state()),
    ]


def judge_pidfd(has_pidfd: bool) -> Check:
    """A pidfd is how a signal reaches the process that was meant, and no later one."""
    if has_pidfd:
        return Check("pidfd", OK, "deaths are told by the kernel, signals can't hit a reused pid")
    line = "the kernel has no pidfd_open (Linux 5.3): deaths are found by looking, not told"
    return Check("pidfd", WARN, line)


def judge_ptrace(scope: int | None, is_root: bool, may_trace: bool | None = None) -> Check:
    """Ranks dump their own stacks; ptrace is for native ones, and for where their threads wait.

    may_trace: whether it worked on a child of ours, which a scope below 2 allows.
    """
    if may_trace is False and (scope or 0) < 2:
        line = (
            "refused here, most likely by the container's seccomp profile: Python stacks still work"
            " while a rank answers, native ones and those of stopped ranks do not, and a lock that "
            "nobody lets go is only silence; `--cap-add SYS_PTRACE` allows it"
        )
        return Check("ptrace", NOTE, line)
    if not scope or (is_root and scope < 3):
        return Check("ptrace", OK, "it can be seen where a hung rank waits, native stacks included")
    if scope == 1:
        line = (
            "kernel.yama.ptrace_scope = 1: ranks let the processes of `holdfast run` look; a "
            "sidecar beside torchrun sees neither native stacks nor locks that nobody lets go"
        )
        return Check("ptrace", NOTE, line)
    line = (
        f"kernel.yama.ptrace_scope = {scope}: Python stacks still work, native ones (py-spy, gdb) "
        "do not, and a lock that nobody lets go is only silence; "
        "`sysctl kernel.yama.ptrace_scope=1` allows them"
    )
    return Check("ptrace", NOTE, line)


def judge_py_spy(program: str) -> Check:
    """A stopped rank can't dump its own stack, and nobody dumps native frames."""
    if program:
        return Check("py-spy", OK, f"{program}: stacks of ranks that can't answer, native frames")
    line = (
        "not installed: hangs are found, but no stack is kept of a stopped rank, a stuck loader "
        "worker or a rank without hooks, nor native frames; `pip install 'holdfast[stacks]'`"
    )
    return Check("py-spy", NOTE, line)


def judge_kernel_log(may_read: bool) -> Check:
    """Which process the OOM killer took, which GPU or link failed just before."""
    if may_read:
        line = "GPU faults (XIDs) are read from it, and its lines are kept of an incident"
        return Check("kernel log", OK, line)
    line = (
        "may not be read: of GPU faults only NVML's numbers are seen, nothing of NVSwitches nor of "
        "what came before, and incidents lack the kernel's lines; CAP_SYSLOG, or "
        "`sysctl kernel.dmesg_restrict=0` and /dev/kmsg in the container, allow it"
    )
    return Check("kernel log", NOTE, line)


def judge_open_files(limit: int) -> Check:
    """Whether a rank, its workers and its sockets can be open at once."""
    if limit != resource.RLIM_INFINITY and limit < FEW_FILES:
        line = (
            f"only {limit} open files per process: `ulimit -n 65536` (or LimitNOFILE) allows more"
        )
        return Check("open files", WARN, line)
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return Check("open files", OK, f"{shown} per process")


def judge_core_dumps(limit: int) -> Check:
    """The kernel tells of a death only after the core is written."""
    if limit == 0:
        return Check("core dumps", OK, "off: a crash is seen at once")
    line = "on: a crashed rank is seen only after its core is written; `ulimit -c 0` turns them off"
    return Check("core dumps", NOTE, line)


CLOCKS_APART = (
    "times of different nodes can't be compared, and a change of leader may shorten or lengthen a"
    " pause before a restart"
)


def judge_clock(state: int | None) -> Check:
    """Stories and metrics of several nodes are told by wall clocks, and some waits go by one.

    Restart budgets, the pause before a restart and the join timeout go by the leader's own: what
    they count from is kept in the store, to outlive the leader, and a monotonic clock means
    nothing on another node. A change of leader shifts them by what the two clocks differ.
    """
    if state == UNSYNCHRONISED:
        return Check("clock", WARN, f"not synchronised: {CLOCKS_APART}; run chrony or ntpd")
    if state is None:
        return Check("clock", NOTE, "whether it is synchronised can't be read here")
    return Check("clock", OK, "synchronised")


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _read_ptrace_scope() -> int | None:
    try:
        return int(PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return None


def _may_read(kernel_log: Path) -> bool:
    try:
        os.close(open_log(kernel_log))
    except OSError:
        return False
    return True


def _read_clock_state() -> int | None:
    clock = read_clock()
    if clock is None:
        return None
    return 0 if clock.is_synchronised else UNSYNCHRONISED
