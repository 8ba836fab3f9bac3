"""The command lines of the demonstration, and the environment they run in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.demo.scenario import NODES, RANKS_PER_NODE, TRAINING_NODES, WORLD_SIZE
from holdfast_sidecar.demo.workspace import Workspace

ENDLESS = 1_000_000
UNDISTURBED = "undisturbed"
SURVIVED = "survived"

HOLDFAST = (sys.executable, "-m", "holdfast_sidecar.cli.main")


def undisturbed_run(workspace: Workspace, steps: int) -> list[str]:
    """The plain script under plain torchrun: nothing of Holdfast in it."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={WORLD_SIZE}",
        str(asset("examples/chargpt.py")),
        f"--steps={steps}",
        f"--out={workspace.weights(UNDISTURBED)}",
    ]


def node_of_the_job(
    workspace: Workspace, redis: RedisSettings, job: str, node: str, steps: int
) -> list[str]:
    """`holdfast run` of the script with the three lines, as one node of the job."""
    return [
        *holdfast("run", redis, job),
        f"--node={node}",
        f"--policy={workspace.settings_file}",
        f"--nnodes={TRAINING_NODES}",
        f"--spares={len(NODES) - TRAINING_NODES}",
        f"--nproc-per-node={RANKS_PER_NODE}",
        str(asset("examples/chargpt_resumable.py")),
        f"--steps={steps}",
        f"--out={workspace.weights(SURVIVED)}",
    ]


def node_on_fakes(
    workspace: Workspace, redis: RedisSettings, job: str, node: str, gpus: int, machine: Path
) -> list[str]:
    """`holdfast run` as one of two nodes, one of them a spare, with a rank for each fake GPU. It
    trains until it is stopped."""
    return [
        *holdfast("run", redis, job),
        f"--node={node}",
        f"--policy={workspace.settings_file}",
        f"--set=paths.machine_root={machine}",
        f"--set=sidecar.machine=machine-{node}",
        # What lies in one node's memory the other one has only by asking for it.
        f"--set=paths.shm_dir={shared_memory(workspace, node)}",
        "--nnodes=1",
        "--spares=1",
        f"--nproc-per-node={gpus}",
        str(asset("examples/chargpt_resumable.py")),
        f"--steps={ENDLESS}",
        f"--out={workspace.weights(SURVIVED)}",
    ]


def node_of_the_pair(
    workspace: Workspace, redis: RedisSettings, job: str, node: str, listen: str
) -> list[str]:
    """`holdfast run` as one of two nodes without a spare, whose sidecar is scraped at `listen`. It
    trains until it is stopped."""
    return [
        *holdfast("run", redis, job),
        f"--node={node}",
        f"--policy={workspace.settings_file}",
        f"--set=sidecar.listen={listen}",
        "--nnodes=2",
        "--nproc-per-node=1",
        str(asset("examples/chargpt_resumable.py")),
        f"--steps={ENDLESS}",
        f"--out={workspace.weights(SURVIVED)}",
    ]


def export_alerts(folder: Path, runbooks: str) -> list[str]:
    """What a person types to get rules, routes and runbooks, which are served at `runbooks`."""
    return [*HOLDFAST, "alerts", "export", f"--out={folder}", f"--runbook-url={runbooks}"]


def shared_memory(workspace: Workspace, node: str) -> Path:
    """A node's own, which must be there before it starts."""
    return workspace.shm / node


def launcher_help() -> list[str]:
    """`holdfast run --help`."""
    return [*HOLDFAST, "run", "--help"]


def ask_for_checkpoint(redis: RedisSettings, job: str) -> list[str]:
    """What a person would type; it waits until the checkpoint is complete."""
    return [*holdfast("checkpoint now", redis, job), "--json"]


def explain(workspace: Workspace, job: str, incident: str) -> list[str]:
    """What a person would type, who finds the settings where the nodes had them."""
    return [*HOLDFAST, "explain", incident, f"--job={job}", f"--policy={workspace.settings_file}"]


def holdfast(command: str, redis: RedisSettings, job: str) -> list[str]:
    """A command of Holdfast about this job, with this interpreter."""
    return [
        *HOLDFAST,
        *command.split(),
        f"--redis={redis.url}",
        f"--redis-password-file={redis.password_file}",
        f"--job={job}",
    ]


def environment() -> dict[str, str]:
    """This process's environment, made the same for both runs."""
    return os.environ | {
        # Bits depend on how many threads share a sum, and two cores have four ranks to carry.
        "OMP_NUM_THREADS": "1",
        # DDP warns that no parameter was unused; the script says why it asks.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # All ranks are on this machine, whatever its host name resolves to.
        "GLOO_SOCKET_IFNAME": "lo",
    }
