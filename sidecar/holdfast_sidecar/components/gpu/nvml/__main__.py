"""A child of the sidecar that asks NVML: `poll EVERY_S` or `events`, then BOARD PARENT PATHS.

Run by its path, isolated and without site-packages, so that it starts in some 20 ms and runs
nobody's start-up code; PATHS are where the sidecar itself finds its modules.
"""

from __future__ import annotations

import os
import sys

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SIGKILL = 9  # its module would bring half a MiB of others


def main(arguments: list[str]) -> None:
    """Ask until killed, or until there is nothing to ask."""
    kind, every_s, board, parent, paths = arguments
    sys.path[:] = paths.split(os.pathsep)
    die_with(int(parent))

    from holdfast_sidecar.components.gpu.nvml.child_io import FAILED, FrameWriter, SharedStatus

    mouth = FrameWriter(own_stdout())
    note = SharedStatus(int(board))
    os.close(int(board))  # mapped by now
    sys.excepthook = lambda kind, error, _: mouth.say(FAILED, f"{kind.__name__}: {error}")
    if kind == "poll":
        from holdfast_sidecar.components.gpu.nvml import poll_child

        poll_child.run(note, mouth, float(every_s))
    else:
        from holdfast_sidecar.components.gpu.nvml import event_child

        event_child.run(note, mouth, int(parent))


def die_with(parent: int) -> None:
    """SIGKILL when the thread that started us ends; it may have ended before we could ask."""
    import ctypes

    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def own_stdout() -> int:
    """The pipe under another number: what a library prints must not come between the frames."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return pipe


if __name__ == "__main__":
    main(sys.argv[1:])
