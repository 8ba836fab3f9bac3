"""One child process that asks NVML: starting it, and what comes through its pipe."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import environment
from holdfast_sidecar.nvml.framing import Frames
from holdfast_sidecar.nvml.note import Note, make_board
from holdfast_sidecar.nvml.wire import Message
from holdfast_sidecar.readings.gpu import GpuReading

CHUNK_BYTES = 65536

MOST_CHUNKS = 32
"""In one look: no child says two MiB at once, and what is left is heard at the next."""

MAIN = Path(__file__).with_name("__main__.py")


def command(kind: str, every_s: float) -> tuple[str, ...]:
    """Starts a child; `start` adds its board, its parent and where modules are."""
    return (sys.executable, "-I", "-S", str(MAIN), kind, str(every_s))


@dataclass
class Child:
    """A process with its pipe and its board."""

    process: subprocess.Popen[bytes]
    board: int
    frames: Frames = field(default_factory=Frames)
    note: Note = field(default_factory=Note)
    """As of the newest look."""
    last: Message | None = None
    reading: GpuReading | None = None
    """The newest: the next one says what has changed of it."""
    closed_s: float | None = None
    """Since when nothing more is expected of it."""
    killed_s: float = 0.0

    @property
    def pipe(self) -> int:
        """Where its frames come out; reading does not wait."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self, now_s: float) -> bytes:
        """What is in the pipe by now."""
        chunks: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(chunks) < MOST_CHUNKS:
                chunks.append(os.read(self.pipe, CHUNK_BYTES))
                if not chunks[-1]:
                    self.closed_s = now_s
                    break
        return b"".join(chunks)

    def close(self) -> None:
        """Let go of its pipe and its board."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self.board)


def start(command: Sequence[str], leads_session: bool) -> Child:
    """A new one; it dies with the thread that calls this. Raises OSError."""
    board = make_board()
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        process = subprocess.Popen(
            (*command, str(board), str(os.getpid()), paths),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(board,),
            cwd="/",
            env=_surroundings(),
            start_new_session=leads_session,
        )
    except OSError:
        os.close(board)
        raise
    child = Child(process, board)
    os.set_blocking(child.pipe, False)
    return child


def _surroundings() -> dict[str, str]:
    """As the sidecar's, for libraries may lie where it says; but no secrets."""
    return {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}
