"""The nodes of the demonstration: `holdfast run` processes on this machine, and what hurts them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from holdfast_sidecar.linux.process import die_with

END_WITHIN_S = 20.0


@dataclass
class Node:
    """One node: its launcher, which is the process we started."""

    name: str
    log: Path
    launcher: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether it ended other than well, and not by our hand."""
        return not self.killed and self.launcher.poll() not in (None, 0)


@dataclass
class Nodes:
    """All nodes that were started, and every process seen below them."""

    nodes: dict[str, Node] = field(default_factory=dict)
    seen: set[psutil.Process] = field(default_factory=set)

    def start(
        self, name: str, command: Sequence[str], environment: dict[str, str], log: Path
    ) -> None:
        """Start a node that Ctrl-C reaches only through us, and that does not outlive us."""
        with log.open("wb") as output:
            launcher = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )
        self.nodes[name] = Node(name, log, launcher)

    def look(self) -> Node | None:
        """Remember who runs below each node; answer a node that failed by itself."""
        for node in self.nodes.values():
            self.seen |= set(_tree(node.launcher.pid))
        return next((node for node in self.nodes.values() if node.has_failed), None)

    def kill(self, name: str) -> None:
        """What a power cut does: sidecar, launcher, ranks and all they started, at once."""
        node = self.nodes[name]
        tree = _tree(node.launcher.pid)
        node.killed = True
        for process in tree:
            _send(process, signal.SIGKILL)

    def are_done(self) -> bool:
        """Whether every launcher has ended."""
        return all(node.launcher.poll() is not None for node in self.nodes.values())

    def end(self) -> list[psutil.Process]:
        """End whatever still runs; answer what outlived its launcher's own clean-up."""
        for node in self.nodes.values():
            if node.launcher.poll() is None:
                # SIGTERM would have the job saved first.
                node.launcher.send_signal(signal.SIGINT)
        for node in self.nodes.values():
            with suppress(subprocess.TimeoutExpired):
                node.launcher.wait(END_WITHIN_S)
        _, left = psutil.wait_procs(self.seen, timeout=END_WITHIN_S)
        for process in left:
            _send(process, signal.SIGKILL)
        return left


def send_to_rank(pid: int, number: signal.Signals) -> None:
    """Hurt one rank."""
    os.kill(pid, number)


def _tree(pid: int) -> list[psutil.Process]:
    """A process and everything below it, the youngest generation last."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
