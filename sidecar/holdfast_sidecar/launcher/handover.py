"""What a warm interpreter is given to become a rank, and whether it may stand in for a cold one.

Used on both sides of the socket, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import is_zipfile

PREFIXES = ("HOLDFAST_", "TORCHELASTIC_")
NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "WORLD_SIZE",
    }
)
"""Variables of a rank and an attempt. Nothing reads them before the script's own first use of a
process group or a GPU, so they may be set after torch was imported; no others may."""

LARGEST_BYTES = 1 << 20
"""More than the kernel takes for one variable (128 KiB) several times over. What is larger is
refused before it is sent: half an environment would be a wrong one."""

READY = b"r"


@dataclass(frozen=True)
class Handover:
    """The rank to become. Descriptors for stdout and stderr travel beside it."""

    set: dict[str, str]
    unset: list[str]
    directory: str
    priority: int = 0

    def encode(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode()


def is_late(name: str) -> bool:
    """Whether this variable may be set after torch was imported."""
    return name in NAMES or name.startswith(PREFIXES)


def early_part(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is handed over later: a warm interpreter starts with this."""
    return {name: value for name, value in environment.items() if not is_late(name)}


def make_handover(
    started_with: Mapping[str, str], wanted: Mapping[str, str], directory: str, priority: int = 0
) -> Handover | None:
    """The difference between two environments; None when it holds what can't be set late."""
    changed = {name: value for name, value in wanted.items() if started_with.get(name) != value}
    unset = [name for name in started_with if name not in wanted]
    if not all(is_late(name) for name in [*changed, *unset]):
        return None
    made = Handover(changed, unset, directory, priority)
    return made if len(made.encode()) <= LARGEST_BYTES else None


def can_be_warm(arguments: Sequence[str], interpreter: str) -> bool:
    """Whether the command is `python -u script …` or `python -u -m module …` of this Python.

    A directory, an archive or compiled code as the script is left to Python itself.
    """
    if len(arguments) < 3 or list(arguments[:2]) != [interpreter, "-u"]:
        return False
    if arguments[2] == "-m":
        return len(arguments) > 3
    script = Path(arguments[2])
    is_plain = script.is_file() and script.suffix != ".pyc" and not is_zipfile(script)
    return is_plain and not arguments[2].startswith("-")


def say_ready(channel: socket.socket) -> None:
    """Everything is imported: this interpreter may be given a rank."""
    with contextlib.suppress(OSError):
        channel.send(READY)


def is_ready(channel: socket.socket) -> bool:
    """Whether the interpreter said so; not while it imports, nor after it failed to."""
    with contextlib.suppress(OSError):
        return channel.recv(1, socket.MSG_DONTWAIT) == READY
    return False


def send(channel: socket.socket, handover: Handover, streams: Sequence[int]) -> None:
    """Give a warm interpreter its rank. Raises OSError when it is gone."""
    content = handover.encode()
    header = len(content).to_bytes(4, "big")
    socket.send_fds(channel, [header], list(streams))
    channel.sendall(content)


def receive(channel: socket.socket) -> tuple[Handover, list[int]] | None:
    """Wait to be given a rank; None when the launcher closed its end."""
    header, streams, _, _ = socket.recv_fds(channel, 4, 2)
    if len(header) < 4:
        return None
    left = int.from_bytes(header, "big")
    content = b""
    while len(content) < left:
        part = channel.recv(left - len(content))
        if not part:
            return None
        content += part
    return Handover(**json.loads(content)), streams
