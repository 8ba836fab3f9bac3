"""The kernel's rules: whom we may trace, how much we may open, how deaths and time are told."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from holdfast_sidecar.components.host.clock import UNSYNCHRONISED, read_clock
from holdfast_sidecar.examination.check import NOTE, OK, WARN, Check
from holdfast_sidecar.examination.namespaces import check_first_process, check_processes
from holdfast_sidecar.examination.tracing import may_trace_children
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.linux.kmsg import open_log
from holdfast_sidecar.ranks.stacks import find_spy

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
