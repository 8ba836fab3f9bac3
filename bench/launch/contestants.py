"""The launchers under comparison: what is typed on each node to start the same job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.launch import names
from bench.launch.environments import python
from bench.launch.processes import NODE_MARK, RUN_MARK

TRAIN = Path(__file__).with_name("train.py")


@dataclass(frozen=True)
class Scenario:
    """How the job is to be started: the same for every contestant."""

    run: str
    directory: Path
    optimizer: str
    min_nodes: int = 2
    max_nodes: int = 2
    spares: int = 0
    port: int = 0
    """Where the peers' rendezvous listens, on the first node."""
    redis_url: str = ""
    group_timeout_s: float = 0.0
    sleep_s: float = 0.040
    """What a step lasts beside its own small computation."""
    ranks_per_node: int = 1

    @property
    def nodes(self) -> str:
        """torchrun's way to write how many nodes there may be."""
        if self.min_nodes == self.max_nodes:
            return str(self.max_nodes)
        return f"{self.min_nodes}:{self.max_nodes}"

    def training(self) -> list[str]:
        """train.py and its options."""
        options = ["--directory", str(self.directory), "--optimizer", self.optimizer]
        options += ["--sleep", str(self.sleep_s), "--group-timeout", str(self.group_timeout_s)]
        return [str(TRAIN), *options]


@dataclass(frozen=True)
class Contestant:
    """A launcher: its command for one node, and what its environment needs."""

    name: str
    command: Callable[[Scenario, str], list[str]]
    environment: Callable[[Scenario, str], Mapping[str, str]] = lambda scenario, node: {}
    spares: int = 0
    """Nodes that wait for a lost one; those that have no spares get a relaunched agent instead."""


FIRST_NODE = "a"

STRAY = ("HOLDFAST_", "TORCH", "PYTHON")
"""Variables of whoever started the benchmark that would change what a contestant does."""


def environment(contestant: Contestant, scenario: Scenario, node: str) -> dict[str, str]:
    """What the launcher of this node inherits: one thread per rank, the mark, nothing stray."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(STRAY)}
    own = {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": str(scenario.directory / "state"),
        RUN_MARK: scenario.run,
        NODE_MARK: node,
    }
    return {**kept, **own, **contestant.environment(scenario, node)}


def _rendezvous(scenario: Scenario, node: str) -> list[str]:
    # Both nodes are this host, so torch could not tell which of them shall hold the store.
    holds_store = int(node == FIRST_NODE)
    return [
        f"--nnodes={scenario.nodes}",
        f"--nproc-per-node={scenario.ranks_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{scenario.port}",
        f"--rdzv-id={scenario.run}",
        f"--rdzv-conf=is_host={holds_store}",
        "--max-restarts=5",
    ]


def _torchrun(scenario: Scenario, node: str) -> list[str]:
    launcher = [str(python("torchrun")), "-m", "torch.distributed.run"]
    return [*launcher, *_rendezvous(scenario, node), *scenario.training()]


def _nvrx(scenario: Scenario, node: str) -> list[str]:
    return [
        str(python("nvrx").with_name("ft_launcher")),
        *_rendezvous(scenario, node),
        # A hang is seen after 1 s between heartbeats; before the first one there is the start-up.
        "--ft-rank-heartbeat-timeout=1",
        "--ft-initial-rank-heartbeat-timeout=120",
        "--ft-workload-check-interval=0.2",
        *scenario.training(),
        "--nvrx",
    ]


def _holdfast(scenario: Scenario, node: str) -> list[str]:
    return [
        str(Path(sys.executable).with_name("holdfast")),
        "run",
        f"--job={scenario.run}",
        f"--node={node}",
        f"--redis={scenario.redis_url}",
        f"--nnodes={scenario.nodes}",
        f"--spares={scenario.spares}",
        f"--nproc-per-node={scenario.ranks_per_node}",
        *scenario.training(),
    ]


def _bare(scenario: Scenario, node: str) -> list[str]:
    return [str(python("torchrun")), *scenario.training()]


def _bare_environment(scenario: Scenario, node: str) -> dict[str, str]:
    rank = str(int(node != FIRST_NODE))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(scenario.port)}
    return {**address, "RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": str(scenario.max_nodes)}


def _own_store(_scenario: Scenario, _node: str) -> dict[str, str]:
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


TORCHRUN = Contestant(names.TORCHRUN, _torchrun)
TORCHRUN_OWN_STORE = Contestant(names.TORCHRUN_OWN_STORE, _torchrun, _own_store)
NVRX = Contestant(names.NVRX, _nvrx)
HOLDFAST = Contestant(names.HOLDFAST, _holdfast, spares=1)
BARE = Contestant(names.BARE, _bare, _bare_environment)
"""Two plain processes: what a launcher's overhead per step is measured against."""
