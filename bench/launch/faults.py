"""The ways in which a running job is disturbed, and what counts as being back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.launch.job import Job
from bench.launch.processes import kill, kill_marked
from bench.launch.steps import Event, newest_pid

VICTIM_RANK = 1
VICTIM_NODE = "b"


@dataclass(frozen=True)
class Fault:
    """What is done to a job of two nodes with one rank each."""

    row: str
    strike: Callable[[Job, Sequence[Event]], None]
    world_size: int = 2
    """Ranks that must step again."""
    min_nodes: int = 2
    replaced: bool = False
    """A spare waits (Holdfast), or the lost node's agent is started again (the peers)."""
    torchrun_group_timeout_s: float = 0.0
    """torchrun watches no progress: only a short timeout of the process group shows it a hang."""


def _kill_rank(_job: Job, events: Sequence[Event]) -> None:
    kill(newest_pid(events, VICTIM_RANK))


def _stop_rank(_job: Job, events: Sequence[Event]) -> None:
    kill(newest_pid(events, VICTIM_RANK), signal.SIGSTOP)


def _kill_node(job: Job, _events: Sequence[Event]) -> None:
    kill_marked(job.scenario.run, VICTIM_NODE)


SIGKILL = Fault("sigkill", _kill_rank)
SIGSTOP = Fault("sigstop", _stop_rank, torchrun_group_timeout_s=5.0)
NODE_REPLACED = Fault("node-replaced", _kill_node, replaced=True)
NODE_SHRUNK = Fault("node-shrunk", _kill_node, world_size=1, min_nodes=1)
