"""A Slurm of this machine alone for tests: munge, a controller and nodes in one directory, as root.

Every daemon dies with the test run, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import psutil
import pytest

from holdfast_sidecar.linux.process import die_with

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "squeue", "srun")

PATIENCE_S = 30.0

KILL_WAIT_S = 30

CONFIGURATION = """
ClusterName=holdfast
SlurmctldHost={host}
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge/socket
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
KillWait={kill_wait}
MinJobAge=600
MailProg=/bin/true
LaunchParameters=use_interactive_step
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class SlurmCluster:
    """Running daemons, and their commands."""

    home: Path
    names: Sequence[str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Where the commands find this cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return kept | {"SLURM_CONF": str(self.home / "slurm.conf")}

    def run(self, *command: str, check: bool = True, **environment: str) -> str:
        """Output of one of Slurm's commands."""
        done = subprocess.run(
            command,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr, self.story())
        return done.stdout

    def submit(
        self, script: Path, options: Sequence[str], *arguments: str, **environment: str
    ) -> str:
        """The job's number."""
        command = ["sbatch", "--parsable", *options, str(script), *arguments]
        told = self.run(*command, check=True, **environment)
        return told.strip().split(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """What scontrol says of a job."""
        told = self.run("scontrol", "--oneliner", "show", "job", number)
        pairs = (word.partition("=") for word in told.split())
        return {name: value for name, separator, value in pairs if separator}

    def await_that(
        self, is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S
    ) -> None:
        end_s = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < end_s, f"never: {what}\n{self.story()}"
            time.sleep(0.1)

    def nodes_of(self, program: str) -> set[str]:
        """The nodes on which ranks run this program."""
        running = [process for process in psutil.process_iter() if runs(process, program)]
        found = [environment_of(process) for process in running]
        mine = [one for one in found if one.get("SLURM_CONF") == self.mark]
        return {one["SLURMD_NODENAME"] for one in mine if "RANK" in one}

    def lose(self, name: str) -> None:
        """Let a node be gone at once: its daemon, who keeps its steps, and all that they run."""
        (daemon,) = [
            one
            for one in self.daemons
            if list(cast("tuple[str, ...]", one.args))[-2:] == ["-N", name]
        ]
        daemon.kill()
        daemon.wait()
        self.daemons.remove(daemon)
        mine = {"SLURM_CONF": self.mark, "SLURMD_NODENAME": name}.items()
        for process in psutil.process_iter():
            if not mine <= environment_of(process).items():
                continue
            with contextlib.suppress(psutil.Error):
                keepers = [one for one in process.parents() if one.name() == "slurmstepd"]
                for one in (*keepers, process):
                    one.kill()

    @property
    def mark(self) -> str:
        """By which processes of this cluster are known."""
        return str(self.home / "slurm.conf")

    def end_steps(self) -> None:
        """Kill what the daemons have left running: they don't take their jobs along."""
        for process in psutil.process_iter():
            if environment_of(process).get("SLURM_CONF") == self.mark:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def story(self) -> str:
        logs = sorted(self.home.glob("*.log"))
        return "\n".join(f"-- {path.name}\n{path.read_text()[-3000:]}" for path in logs)


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Empty where it is gone, or nobody's to read."""
    try:
        found: dict[str, str] = process.environ()
    except psutil.Error:
        return {}
    return found


def runs(process: psutil.Process, program: str) -> bool:
    """Whether this is what it was started for."""
    try:
        return program in process.cmdline()
    except psutil.Error:
        return False


def missing_programs() -> list[str]:
    """Programs of Slurm that are not installed; they live where only root looks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def require() -> None:
    """Skip on a laptop, fail in CI, where this can't run."""
    reason = ""
    if os.geteuid() != 0:
        reason = "Slurm's daemons need root"
    elif missing := missing_programs():
        reason = f"not installed: {', '.join(missing)}"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"{reason}: in CI these tests must run")
    if reason:
        pytest.skip(reason)


@contextmanager
def running(nodes: int = 1) -> Iterator[SlurmCluster]:
    """A cluster whose nodes are idle, until the end of the block."""
    require()
    home = Path(tempfile.mkdtemp(prefix="hf-slurm-", dir="/tmp"))
    cluster = SlurmCluster(home, [f"n{index}" for index in range(nodes)])
    try:
        _start(cluster)
        yield cluster
    finally:
        for daemon in reversed(cluster.daemons):
            daemon.kill()
            daemon.wait()
        cluster.end_steps()
        shutil.rmtree(home, ignore_errors=True)


def _start(cluster: SlurmCluster) -> None:
    home = cluster.home
    home.chmod(0o755)
    for name in ("munge", "state", *(f"spool-{node}" for node in cluster.names)):
        (home / name).mkdir(mode=0o755)
    key = home / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    controller, *ports = free_ports(1 + len(cluster.names))
    host = socket.gethostname().partition(".")[0]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
        for name, port in zip(cluster.names, ports, strict=True)
    ]
    (home / "cgroup.conf").write_text("CgroupAutomount=no\n")
    (home / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=f"{host}(127.0.0.1)",
            controller=controller,
            home=home,
            nodes="\n".join(lines),
            kill_wait=KILL_WAIT_S,
        )
    )
    munge = home / "munge"
    _daemon(
        cluster,
        *("munged", "--foreground", "--force", f"--key-file={key}"),
        *(f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--seed-file={munge}/seed"),
    )
    cluster.await_that((munge / "socket").exists, "munge listens")
    _daemon(cluster, "slurmctld", "-D", "-c")
    for name in cluster.names:
        _daemon(cluster, "slurmd", "-D", "-N", name)
    wanted = ["idle"] * len(cluster.names)
    cluster.await_that(
        lambda: cluster.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == wanted,
        "the nodes are idle",
    )


def _daemon(cluster: SlurmCluster, *command: str) -> None:
    with (cluster.home / "daemons.log").open("ab") as log:
        daemon = subprocess.Popen(
            command,
            env=cluster.environment | {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(die_with, os.getpid()),
        )
    cluster.daemons.append(daemon)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
