"""What may fall ill: jobs that train, nodes that are only watched, and what is done to them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from testing.fake_node import ACTIVE, DOWN, FakeSysfs, build_fabric
from tests.end_to_end.faults.job import Job, new_job
from tests.servers import Server, free_port

PORT = "mlx5_0"
FLAP_S = 2.5
"""Longer than two looks at the port, far shorter than what makes a link lost."""
FLAPS = 3

XID = "NVRM: Xid (PCI:0000:17:00): 43, pid=7, name=python, Ch 00000008"

TRAINING = ("resumable", "1000000", "0.02")

COSTS = ("--set=cost.per_gpu_hour=2",)
"""For dashboards to have something to show. No directory for checkpoints: what is in memory would
be written down before the spare is let in, and the page for a lost node might come before."""


@dataclass
class Patient:
    """A job whose sidecars listen where Prometheus looks for them, also after a node was away."""

    job: Job
    options: Sequence[str]
    listen: dict[str, str]
    own: dict[str, list[str]] = field(default_factory=dict)
    """Options of one node alone."""

    @property
    def sidecars(self) -> list[str]:
        """host:port of each."""
        return list(self.listen.values())

    def start(self, node: str) -> None:
        """For the first time, or again."""
        own = [f"--set=sidecar.listen={self.listen[node]}", *self.own.get(node, ())]
        self.job.start(node, [*self.options, *own], TRAINING)

    def leader(self) -> str:
        """The node that leads now."""
        return self.job.lease().candidate.partition("/")[0]

    def follower(self) -> str:
        """A node that trains and does not lead."""
        training = sorted({rank.node for rank in self.job.ranks().values()})
        return next(node for node in training if node != self.leader())

    def kill(self, node: str) -> float:
        """All of a node at once, as a power cut does it; when that was."""
        launcher = psutil.Process(self.job.nodes[node].process.pid)
        doomed = {self.job.sidecar(node), launcher.pid}
        doomed |= {process.pid for process in launcher.children(recursive=True)}
        doomed.discard(0)  # no sidecar has said who it is: 0 would be our own process group
        for number in (signal.SIGSTOP, signal.SIGKILL):  # or those killed first would be told of
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.job.nodes[node].process.wait()
        return time.time()


def pair(server: Server, name: str) -> Patient:
    """Two nodes of one rank, and no spare."""
    return _patient(server, name, "ab", ["--nnodes=2"])


def with_a_spare(server: Server, name: str) -> tuple[Patient, FakeSysfs]:
    """The same and a spare; the first node's links are ours to pull."""
    patient = _patient(server, name, "abc", ["--nnodes=2", "--spares=1", *COSTS])
    machine = patient.job.folder / "machine"
    links = fake_machine(machine)
    patient.own["a"] = [f"--set=paths.machine_root={machine}", "--set=sidecar.machine=machine-a"]
    return patient, links


def fake_machine(root: Path) -> FakeSysfs:
    """This machine's /proc, an empty kernel log, and two RDMA ports that are none."""
    (root / "dev").mkdir(parents=True)
    (root / "proc").symlink_to("/proc")
    (root / "dev" / "kmsg").touch()
    return build_fabric(root, 2)


def log_xid(machine: FakeSysfs) -> None:
    """The driver says that it ended a program, which blames no machine and calls nobody."""
    with (machine.root / "dev" / "kmsg").open("a") as log:
        log.write(f"3,1,{time.monotonic_ns() // 1000},-;{XID}\n")


def flap(links: FakeSysfs) -> None:
    """A link goes and comes back, often enough to be worth a look."""
    for _ in range(FLAPS):
        for state in (DOWN, ACTIVE):
            links.set_state(PORT, state)
            time.sleep(FLAP_S)


def _patient(server: Server, name: str, nodes: str, options: list[str]) -> Patient:
    listen = {node: f"127.0.0.1:{free_port()}" for node in nodes}
    return Patient(new_job(server, name), options, listen)
