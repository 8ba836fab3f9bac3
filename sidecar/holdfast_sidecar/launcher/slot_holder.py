"""The holder of this node's snapshot memory as a child: started once, ended with the launch.

The launcher only keeps an end of its socket, which every sidecar inherits: the holder stays until
both are gone (`holdfast_sidecar.checkpoint.snapshot.memory_holder`).
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from pathlib import Path

import holdfast_sidecar

logger = logging.getLogger(__name__)

PROGRAM = Path(holdfast_sidecar.__file__).parent / "checkpoint/snapshot/memory_holder.py"

LEAVING_S = 2.0
"""It ends as soon as the last end of its socket is closed; a sidecar that still saves has one."""


class SlotHolder:
    """A context: within it each sidecar that inherits `link` reaches the holder."""

    def __init__(self, shm: Path) -> None:
        """shm: the node's directory of shared memory."""
        self._shm = shm
        self.link: int | None = None
        """None: it could not be started, and slots are files with names."""
        self._near: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlotHolder:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                # By its path and isolated: nothing of the user's directory or environment counts.
                [sys.executable, "-I", "-S", str(PROGRAM), str(self._shm), str(far.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(far.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            logger.warning("snapshots are kept in files with names: %s", error)
            near.close()
        else:
            self._near, self.link = near, near.fileno()
        far.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._near is None or self._process is None:
            return
        self._near.close()
        try:
            self._process.wait(LEAVING_S)
        except subprocess.TimeoutExpired:
            logger.debug("the holder of snapshots stays until the sidecar has left")
