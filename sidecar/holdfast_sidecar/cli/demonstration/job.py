"""The nodes of the demonstration: `holdfast run` processes on this machine, and what hurts them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

import psutil

from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.config.settings import PathSettings, RedisSettings
from holdfast_sidecar.linux.process import die_with

END_WITHIN_S = 20.0


@dataclass
class DemoNode:
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

    nodes: dict[str, DemoNode] = field(default_factory=dict)
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
        self.nodes[name] = DemoNode(name, log, launcher)

    def look(self) -> DemoNode | None:
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


# What a demonstration that was killed left behind: the next one removes it.
#
# Each holds a lock in its directories for as long as it lives; the kernel lets go of it with the
# process, however that ends. What has no lock is not ours to judge.

PREFIX = "holdfast-demo-"
"""How the directories' names begin, in shared memory and in the temporary directory."""

LOCK = "alive.lock"


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Ours until the end of the block. The lock is there only once it is held."""
    new = directory / f"{LOCK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(directory / LOCK)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove this user's directories here whose demonstration lives no more; answers which."""
    found = (path for path in parent.glob(f"{PREFIX}*") if _is_own(path))
    return [path for path in found if _removed(path)]


def _is_own(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _removed(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except OSError:
        return False  # it lives, or locks are unknown there
    finally:
        os.close(descriptor)
    return not directory.exists()


# What happens in the demonstration, and when: the job's shape and the faults, in order.

NODES = ("a", "b", "c")
"""Two nodes train, the last one is the spare."""

TRAINING_NODES = 2
RANKS_PER_NODE = 2
WORLD_SIZE = TRAINING_NODES * RANKS_PER_NODE
SAVE_EVERY_STEPS = 100
"""They are written at the lowest priority: on two cores that four ranks keep busy, one takes a
hundred steps, and a request that comes meanwhile waits for it."""
SNAPSHOT_EVERY_STEPS = 1
"""The model is small: what is worked out from the cost would be less often, and show less."""


class FaultKind(str, Enum):
    """What is done to the job."""

    KILL_RANK = "kill a rank"
    FREEZE_RANK = "freeze a rank"
    SAVE = "ask for a checkpoint"
    KILL_NODE = "kill a node"


@dataclass(frozen=True)
class Event:
    """One thing done to the job, no earlier than this step of its slowest rank.

    `rank` is the one that is hurt; for a node, the first rank on it.
    """

    kind: FaultKind
    at_step: int
    rank: int = -1

    @property
    def causes(self) -> tuple[str, ...]:
        """What Holdfast may rightly call it (`Incident.cause`)."""
        return {
            FaultKind.KILL_RANK: ("crash",),
            FaultKind.FREEZE_RANK: ("hang", "stall"),
            FaultKind.KILL_NODE: ("node_lost",),
            FaultKind.SAVE: (),
        }[self.kind]

    @property
    def hurt(self) -> tuple[int, ...]:
        """The ranks that are to blame when it is found."""
        if self.kind is FaultKind.KILL_NODE:
            return tuple(range(self.rank, self.rank + RANKS_PER_NODE))
        return () if self.rank < 0 else (self.rank,)


@dataclass(frozen=True)
class Scenario:
    """A job of `steps` steps and what is done to it."""

    steps: int
    events: tuple[Event, ...]


def scenario() -> Scenario:
    """The demonstration. After the request there is time for two writes before the job's end.

    The ranks hurt are on different nodes, so that no node is blamed twice.
    """
    return Scenario(
        steps=360,
        events=(
            Event(FaultKind.KILL_RANK, at_step=60, rank=3),
            Event(FaultKind.FREEZE_RANK, at_step=120, rank=1),
            Event(FaultKind.SAVE, at_step=160),
            Event(FaultKind.KILL_NODE, at_step=240, rank=2),
        ),
    )


# The demonstration's own files: one directory on disk, one in shared memory, both removed.


@dataclass(frozen=True)
class Workspace:
    """Where everything of one demonstration lies."""

    root: Path
    shm: Path

    @property
    def settings_file(self) -> Path:
        """holdfast.toml of the three nodes."""
        return self.root / "holdfast.toml"

    @property
    def server(self) -> Path:
        """Directory of the Redis-compatible server."""
        return self.root / "server"

    def log(self, name: str) -> Path:
        """What a node, or the undisturbed run, printed."""
        return self.root / f"{name}.log"

    def weights(self, name: str) -> Path:
        """SHA-256 of a run's final weights."""
        return self.root / f"{name}.sha256"

    def weights_hash(self, name: str) -> str:
        """What that file holds; empty when the run never got there."""
        path = self.weights(name)
        return path.read_text().strip() if path.exists() else ""


def write_settings(workspace: Workspace, save_every_steps: int) -> None:
    """Snapshots and checkpoints on a grid of steps; every file of the job inside the workspace."""
    workspace.settings_file.write_text(
        "[checkpoint]\n"
        f"dir = '{workspace.root / 'checkpoints'}'\n"
        f"every_steps = {save_every_steps}\n"
        "[snapshot]\n"
        f"every_steps = {SNAPSHOT_EVERY_STEPS}\n"
        "[paths]\n"
        f"shm_dir = '{workspace.shm}'\n"
        f"state_dir = '{workspace.root / 'state'}'\n"
    )


@contextmanager
def open_workspace(
    keep: Path | None, save_every_steps: int = SAVE_EVERY_STEPS
) -> Iterator[Workspace]:
    """A fresh workspace; `keep` names a directory whose files stay. What demonstrations left behind
    that were killed is removed first."""
    temporary, shared = Path(tempfile.gettempdir()), Path(PathSettings().shm_dir)
    remove_leftovers(temporary)
    remove_leftovers(shared)
    with ExitStack() as stack:
        if keep is None:
            root = stack.enter_context(_passing(temporary))
        else:
            root = keep.absolute()
            root.mkdir(parents=True)
        workspace = Workspace(root, stack.enter_context(_passing(shared)))
        write_settings(workspace, save_every_steps)
        yield workspace


@contextmanager
def _passing(parent: Path) -> Iterator[Path]:
    """A new directory that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with claimed(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# The command lines of the demonstration, and the environment they run in.

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


# Why a demonstration could not go on, and where to read more.

LINES = 15


class DemonstrationStopped(Exception):
    """One line; `log` holds what the failed part printed."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.log = log

    @property
    def tail(self) -> list[str]:
        """The last lines of the log."""
        if self.log is None or not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-LINES:]
