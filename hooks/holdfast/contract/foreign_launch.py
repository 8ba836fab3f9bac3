"""Which rank of which attempt a process is, where the job was started by somebody else's launcher.

For `holdfast attach`: srun, mpirun and Kubernetes name ranks each in their own way, and make no
directories for us. Imported at a rank's start, so nothing of weight is imported here.
"""

from __future__ import annotations

import os

from holdfast.contract import environment
from holdfast.contract.own_directory import SHM_PARTS, make_closed, open_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

NODE_HERE = "{node}"
ATTEMPT_HERE = "{attempt}"
"""Stand in HOLDFAST_PAGE_DIR and HOLDFAST_EVIDENCE_DIR for what each node and start knows."""

LAUNCHERS = frozenset({"torchrun", "holdfast", "accelerate", "deepspeed", "mpirun", "srun"})
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands",
    "deepspeed.launcher",
    "holdfast_sidecar",
)
"""Programs that are started like a rank and start the ranks themselves."""

_WITH_VALUE = ("-X", "-W")
"""Python's own options whose value is a word of its own."""

_SLURM = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
_HYDRA = ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE")
_PLAIN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class Seat:
    """A rank's place, as its launcher numbers it."""

    __slots__ = ("local_rank", "rank", "world_size")

    def __init__(self, rank: int, local_rank: int, world_size: int) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.world_size = world_size


def find_seat(environ: Mapping[str, str]) -> Seat | None:
    """The place that this environment gives a process; None: it is no rank.

    torchrun's names come first, whoever started torchrun. The others count only in a job that is
    attached to, as every process below such a launcher has them.
    """
    if environ.get("LOCAL_RANK"):
        return _seat(environ, *_PLAIN)
    if not environ.get(environment.ATTACH):
        return None
    for names in (_OPEN_MPI, _HYDRA):
        if environ.get(names[0]):
            return _seat(environ, *names)
    # A batch script has the number of the only task too, but is no step of its job.
    if environ.get("SLURM_STEP_ID") and environ.get("SLURM_PROCID"):
        return _seat(environ, *_SLURM)
    # One rank per pod, as Kubernetes operators set it up.
    return _seat(environ, *_PLAIN) if environ.get("RANK") else None


def _seat(environ: Mapping[str, str], rank: str, local_rank: str, *sizes: str) -> Seat | None:
    size = next((environ[name] for name in sizes if environ.get(name)), "1")
    try:
        local = int(environ.get(local_rank) or 0)
        return Seat(int(environ.get(rank) or local), local, int(size))
    except ValueError:
        return None


def is_launcher(command: Sequence[str]) -> bool:
    """Whether this command line of Python starts ranks rather than being one."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, "").startswith(LAUNCHER_MODULES)
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word) in LAUNCHERS  # noqa: PTH119 - pathlib costs at every start
    return False


def node_name(environ: Mapping[str, str], host: str) -> str:
    """What this node is called inside the job: as told, as Slurm names it, or as its host."""
    told = environ.get(environment.NODE)
    if told:
        return told
    name = environ.get("SLURMD_NODENAME") or host.partition(".")[0]
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return name.strip("-")[:63] or "node"


def attempt_of(environ: Mapping[str, str]) -> int:
    """How often this job was started before, as far as its launcher counts."""
    for name in (environment.ATTEMPT, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"):
        count = environ.get(name, "")
        if count.isdecimal():
            return int(count)
    return 0


def settle(environ: MutableMapping[str, str]) -> None:
    """Fill in what a launcher of ours would have set, and make this node's directories."""
    node, attempt = node_name(environ, os.uname().nodename), attempt_of(environ)
    environ[environment.NODE] = node
    environ[environment.ATTEMPT] = str(attempt)
    for name, parts, inner in (
        (environment.PAGE_DIR, SHM_PARTS, 0),
        (environment.EVIDENCE_DIR, 2, 2),
    ):
        path = environ.get(name, "")
        if path:
            path = path.replace(NODE_HERE, node).replace(ATTEMPT_HERE, str(attempt))
            environ[name] = path
            make_private(path.rsplit("/", inner)[0], parts)
            make_closed(path)


def make_private(path: str, own_parts: int = SHM_PARTS) -> None:
    """Make a directory of which so many parts are ours, each for this user alone. OSError."""
    above = os.path.abspath(path).rsplit("/", own_parts)[0]  # noqa: PTH100
    os.makedirs(above or "/", 0o700, exist_ok=True)  # noqa: PTH103
    os.close(open_private(path, own_parts, make=True))


def rank_environment(job: str, shm_dir: str, state_root: str, user_id: int) -> dict[str, str]:
    """What ranks need so that they can be attached to, whoever starts them and where."""
    return {
        environment.ATTACH: "1",
        environment.JOB: job,
        environment.PAGE_DIR: f"{shm_dir}/holdfast-{user_id}/{job}/{NODE_HERE}",
        environment.EVIDENCE_DIR: (
            f"{state_root}/{job}/{NODE_HERE}/evidence/attempt-{ATTEMPT_HERE}"
        ),
        # Nobody orders checkpoints there, so nobody needs slots.
        environment.SNAPSHOTS: "0",
        "PYTHONPATH": environment.python_path(),
    }
