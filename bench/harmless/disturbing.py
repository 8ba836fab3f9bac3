"""What is done to an odd job while it runs: signals, debuggers, control groups, limits.

Each raises NotRun when it can't show that what it does was done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.benchmark import NotRun
from bench.harmless.job import NODES, Run
from holdfast.contract import environment
from holdfast.contract.page import Word, page_name
from holdfast_sidecar.launcher.rank_state import read_words

SNAPSHOT_LOOK_S = 0.005

Step = Callable[[Run], None]

NO_SYMBOLS = ("-iex", "set auto-solib-add off", "-iex", "set debuginfod enabled off")
"""Torch's take gdb half a minute to read."""


def sidecars_die(run: Run) -> None:
    """All of them, at once."""
    run.await_steps()
    pids = run.sidecar_pids()
    if not sum(_send(pid, signal.SIGKILL) for pid in pids):
        raise NotRun("there was no sidecar to kill")
    run.must_run_still()


def sidecars_stand_still(seconds: float) -> Step:
    def during(run: Run) -> None:
        run.await_steps()
        stop_all(run.sidecar_pids(), seconds)
        run.must_run_still()

    return during


def whole_launch_stopped(seconds: float) -> Step:
    """As by Ctrl-Z, `scontrol suspend`, a laptop that sleeps."""

    def during(run: Run) -> None:
        run.await_steps()
        stop_all(run.pids(), seconds)
        run.must_run_still()

    return during


def launcher_stopped(seconds: float) -> Step:
    """The launcher alone: Ctrl-Z does not reach ranks, which have sessions of their own."""

    def during(run: Run) -> None:
        run.await_steps()
        node = run.chance.choice(sorted(run.launched))
        stop_all([run.launched[node].process.pid], seconds)
        run.must_run_still()

    return during


def one_rank_stopped_briefly(longest_s: float, times: int) -> Step:
    def during(run: Run) -> None:
        run.await_steps()
        for _ in range(times):
            pid = run.rank_pid(run.chance.randrange(run.job.ranks))
            stop_all([pid], longest_s * run.chance.random())
            time.sleep(0.3 + run.chance.random() / 2)
        run.must_run_still()

    return during


def frozen(seconds: float) -> Step:
    """By the freezer control group, as a machine that is suspended."""

    def during(run: Run) -> None:
        group = _control_group(run, "freezer")
        run.await_steps()
        _enter(group, run.pids())
        (group / "freezer.state").write_text("FROZEN")
        time.sleep(seconds)
        state = (group / "freezer.state").read_text().strip()
        (group / "freezer.state").write_text("THAWED")
        if state != "FROZEN":
            raise NotRun(f"the control group was {state}")
        run.must_run_still()

    return during


def cpu_quota(share: float, seconds: float) -> Step:
    def during(run: Run) -> None:
        group = _control_group(run, "cpu")
        run.await_steps()
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(100_000 * share)))
        _enter(group, run.pids())
        time.sleep(seconds)
        (group / "cpu.cfs_quota_us").write_text("-1")
        words = (group / "cpu.stat").read_text().split()
        if not int(words[words.index("nr_throttled") + 1]):
            raise NotRun("nothing was throttled")
        run.must_run_still()

    return during


def memory_limit(megabytes: int) -> Step:
    """memory.limit_in_bytes, as schedulers and containers set it; the script is told where."""

    def before(run: Run) -> None:
        group = _control_group(run, "memory")
        (group / "memory.limit_in_bytes").write_text(f"{megabytes}M")
        run.more["ODD_MEMORY_GROUP"] = str(group)
        run.prefix += ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"]

    return before


def few_processes(limit: int) -> Step:
    """pids.max, as schedulers set it."""

    def before(run: Run) -> None:
        group = _control_group(run, "pids")
        (group / "pids.max").write_text(str(limit))
        run.prefix += ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]

    return before


def has_few_processes(run: Run) -> None:
    """That its ranks are in the control group."""
    run.await_steps()
    group = Path(f"/proc/{run.rank_pid(0)}/cgroup").read_text()
    if f"pids:/{run.mark}" not in group:
        raise NotRun(f"a rank is not in the control group: {group}")


def few_files(run: Run) -> None:
    """`ulimit -n 1024`, hard."""
    run.prefix += ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh"]


def has_few_files(run: Run) -> None:
    """That its ranks have this limit."""
    run.await_steps()
    limits = Path(f"/proc/{run.rank_pid(0)}/limits").read_text().splitlines()
    (line,) = (line for line in limits if line.startswith("Max open files"))
    if line.split()[3:5] != ["1024", "1024"]:
        raise NotRun(line)


def no_terminal(run: Run) -> None:
    """nohup: SIGHUP is ignored."""
    run.prefix += ["nohup"]


def terminal_closes(run: Run) -> None:
    """SIGHUP to all, which nohup told to ignore it."""
    run.await_steps()
    for launched in run.launched.values():
        if not _send(launched.process.pid, signal.SIGHUP):
            raise NotRun("the launcher was gone")
    run.must_run_still()


def debugged(seconds: float) -> Step:
    """A rank is attached to and held, as by gdb at a prompt."""

    def during(run: Run) -> None:
        run.await_steps()
        pid = run.rank_pid(0)
        hold = f"import time; time.sleep({seconds})"
        command = ["gdb", "-nx", "-q", "-batch", *NO_SYMBOLS, "-p", str(pid)]
        command += ["-ex", f"shell {sys.executable} -S -c '{hold}'"]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as debugger:
            run.stack.callback(debugger.kill)
            _wait_for(lambda: _status(pid, "TracerPid") == str(debugger.pid), "gdb attaches")
            if debugger.wait(timeout=seconds + 60):
                raise NotRun(f"gdb ended with {debugger.returncode}")
        run.must_run_still()

    return during


def profiled(times: int) -> Step:
    """py-spy reads a rank's stack again and again, which stops it for a moment each."""

    def during(run: Run) -> None:
        run.await_steps()
        spy = str(Path(sys.executable).with_name("py-spy"))
        for _ in range(times):
            command = [spy, "dump", "--pid", str(run.rank_pid(0))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotRun(f"py-spy: {done.stderr.strip()}")
        run.must_run_still()

    return during


def rank_killed(run: Run) -> None:
    """What Holdfast is for, once there is something to go on from."""
    run.await_steps(20 + run.chance.randrange(30))
    if not run.job.starts_anew:
        _await_snapshot(run)
    time.sleep(run.chance.random() / 10)
    run.must_run_still()
    if not _send(run.rank_pid(run.chance.randrange(run.job.ranks)), signal.SIGKILL):
        raise NotRun("the rank was gone before it was killed")


def _await_snapshot(run: Run) -> None:
    """Where cores are busy the first slots may be ready only after some ten steps."""
    while not all(_has_snapshot(run, rank) for rank in range(run.job.ranks)):
        run.must_run_still()
        time.sleep(SNAPSHOT_LOOK_S)


def _has_snapshot(run: Run, rank: int) -> bool:
    """Whether it knows of one that all ranks have."""
    try:
        told = psutil.Process(run.rank_pid(rank)).environ()
    except psutil.NoSuchProcess:
        raise NotRun("the rank was gone before it was killed") from None
    name = page_name(int(told[environment.ATTEMPT]), rank)
    words = read_words(Path(told[environment.PAGE_DIR]) / name)
    return words is not None and words[Word.SNAPSHOT_EXISTING] > 0


def node_stopped(seconds: float) -> Step:
    """Everything of one node, as a machine that stands still."""

    def during(run: Run) -> None:
        run.await_steps()
        for spare in NODES[run.job.nodes :][: run.job.spares]:
            run.ways.await_joining(run, spare)
        stop_all(run.pids(run.chance.choice(NODES[: run.job.nodes])), seconds)
        run.must_run_still()

    return during


def _send(pid: int, number: int) -> bool:
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stop_all(pids: list[int], seconds: float) -> None:
    """SIGSTOP to all, and SIGCONT after so long; NotRun when that stopped none."""
    stopped = [pid for pid in pids if _send(pid, signal.SIGSTOP)]
    time.sleep(seconds)
    still = [pid for pid in stopped if _status(pid, "State").startswith("T")]
    for pid in stopped:
        _send(pid, signal.SIGCONT)
    if not still:
        raise NotRun(f"of {len(pids)} processes none was stopped")


def _status(pid: int, name: str) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    return ""


def _wait_for(is_so: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end_s:
            raise NotRun(f"{what}: not within {within_s:g} s")
        time.sleep(0.02)


def _control_group(run: Run, kind: str) -> Path:
    root = Path("/sys/fs/cgroup") / kind
    if os.geteuid() or not (root / "cgroup.procs").exists():
        raise NotRun(f"needs root and the {kind} control groups of version 1")
    group = root / run.mark
    group.mkdir()

    def leave() -> None:
        with contextlib.suppress(OSError):
            (group / "freezer.state").write_text("THAWED")
        for pid in (group / "cgroup.procs").read_text().split():
            _send(int(pid), signal.SIGKILL)
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                return
            time.sleep(0.05)

    run.stack.callback(leave)
    return group


def _enter(group: Path, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))
