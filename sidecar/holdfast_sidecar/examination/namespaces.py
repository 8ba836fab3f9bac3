"""Which processes are seen from here: the machine's, a pod's, or those of one container."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast_sidecar.examination.check import NOTE, OK, WARN, Check
from holdfast_sidecar.linux.files import read_if_any

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
