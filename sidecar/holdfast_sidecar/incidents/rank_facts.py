"""With what a rank was started, read while it is well: its command, its variables, its output.

Not read once it hangs: /proc/PID/environ and cmdline lie in the process's own memory, and whoever
asks for them waits as long as a page of it does.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from holdfast_sidecar.config.redaction import secrets_among
from holdfast_sidecar.ranks.page import RankPage

PROC = Path("/proc")

ATTEMPTS_REMEMBERED = 2
"""An incident's bundle is closed when the next attempt's ranks have begun already."""

_STREAMS = {"stdout": 1, "stderr": 2}

KEPT_PREFIXES = (
    "CUDA",
    "GLOO",
    "HOLDFAST",
    "KUBERNETES",
    "LD_",
    "LOCAL_",
    "MASTER_",
    "MKL",
    "NCCL",
    "NVIDIA",
    "OMP",
    "OMPI",
    "PMI",
    "PYTHON",
    "PYTORCH",
    "RANK",
    "ROLE_",
    "SLURM",
    "TORCH",
    "UCX",
    "VIRTUAL_ENV",
    "WORLD_SIZE",
)
"""Variables that shape a training; of all others only the names are kept."""


@dataclass(frozen=True)
class Output:
    """A file that a rank's output goes to, and how long it was when the rank was first seen."""

    path: Path
    begins: int
    file: tuple[int, int]
    """Device and inode: several ranks may print into one file."""


@dataclass(frozen=True)
class RankFacts:
    """What was read of a rank. What could not be read is empty."""

    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All of them, as they are: whoever writes them down takes the secrets out."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    """`stdout` and `stderr`, where they go to a file."""

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Values that must not be written down wherever they stand."""
        return secrets_among(self.variables)

    @property
    def told_variables(self) -> dict[str, str]:
        """Those whose values are worth keeping."""
        return {
            name: value for name, value in self.variables.items() if name.startswith(KEPT_PREFIXES)
        }


def read_rank_facts(directory: Path) -> RankFacts:
    """The facts of the process whose /proc directory this is."""
    pairs = (item.partition("=") for item in _read_list(directory / "environ"))
    outputs = {name: _read_output(directory / "fd" / str(fd)) for name, fd in _STREAMS.items()}
    return RankFacts(
        command=tuple(_read_list(directory / "cmdline")),
        variables={name: value for name, _, value in pairs},
        outputs={name: output for name, output in outputs.items() if output is not None},
    )


@dataclass
class RankFactsMemory:
    """The facts of this node's ranks, of the newest attempts."""

    proc: Path = PROC
    _known: dict[tuple[int, int, int], RankFacts] = field(default_factory=dict)
    """(attempt, rank, start of the process) -> facts."""

    def follow(self, pages: Iterable[RankPage]) -> None:
        """Read those of ranks that were not seen before."""
        for held in pages:
            identity = held.identity
            who = (identity.attempt, identity.rank, identity.start_ticks)
            if who not in self._known:
                self._known[who] = read_rank_facts(self.proc / str(identity.pid))
                newest = sorted({attempt for attempt, _, _ in self._known})[-ATTEMPTS_REMEMBERED:]
                self._known = {key: one for key, one in self._known.items() if key[0] in newest}

    def of_attempt(self, attempt: int) -> dict[int, RankFacts]:
        """rank -> facts."""
        return {rank: one for (number, rank, _), one in self._known.items() if number == attempt}

    def secrets(self) -> frozenset[str]:
        """All secrets of all ranks that are remembered."""
        return frozenset().union(*(one.secrets for one in self._known.values()))


def _read_list(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError:
        return []
    return [item.decode(errors="replace") for item in content.split(b"\0") if item]


def _read_output(link: Path) -> Output | None:
    """The file behind a descriptor; None where it is a terminal, a pipe or gone."""
    try:
        facts = link.stat()
        target = link.readlink()
    except OSError:
        return None
    if not stat.S_ISREG(facts.st_mode) or not target.is_absolute():
        return None
    return Output(target, facts.st_size, (facts.st_dev, facts.st_ino))


# The index of what was kept before anything was ended; its presence says that it is on disk.

INDEX = "kept.json"


@dataclass(frozen=True)
class EvidenceRecord:
    """What was kept of one incident on this node, and how long that took."""

    incident: str
    ranks: list[int]
    stacks_answered: list[str]
    """Files of the stacks that ranks wrote themselves."""
    spied: list[int] = field(default_factory=list)
    """Ranks whose stacks were read from outside."""
    rings: list[int] = field(default_factory=list)
    """Ranks whose collectives were told by their flight recorders."""
    rings_missing: Mapping[str, str] = field(default_factory=dict)
    """rank -> why its flight recorder told nothing."""
    places: Mapping[str, str] = field(default_factory=dict)
    """rank -> where its main thread stood."""
    seconds: float = 0.0
    at_unix_s: float = 0.0


def is_kept(destination: Path) -> bool:
    """Whether this incident's evidence is on disk already (by an earlier sidecar, say)."""
    return (destination / INDEX).exists()


def write_kept(destination: Path, kept: EvidenceRecord) -> None:
    """Say that it is on disk."""
    write_file(destination / INDEX, json.dumps(asdict(kept), indent=1).encode())


def read_places(destination: Path) -> dict[str, str]:
    """rank -> where its main thread stood; empty without an index."""
    try:
        found = json.loads((destination / INDEX).read_text()).get("places", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return {str(rank): str(place) for rank, place in found.items()}


def write_file(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)
