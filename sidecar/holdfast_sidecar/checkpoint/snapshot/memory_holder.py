"""Holds the memory of a node's slots: a program of its own, run by its path.

It outlives ranks and sidecars, so what is sealed does, too. It ends when nobody has the other end
of its socket any more, launcher and sidecar alike, or with everything else by SIGKILL: either way
the kernel frees the memory, as it has no name of its own. Names in the node's directory only lead
here (`holdfast.contract.snapshot_file.open_slot_file`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

LOOK_S = 5.0
"""Memory whose name is gone is given back at the latest after this: whoever makes more asks."""

MESSAGE_BYTES = 4096
FOLDERS = ("snapshots", "copies")
NAME = re.compile(rf"({'|'.join(FOLDERS)})/rank-\d+-slot-\d+")


class Holder:
    """Descriptors, and the names that lead to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.held: set[int] = set()
        self._target = f"/proc/{os.getpid()}/fd/"

    def hold(self, name: str, descriptor: int) -> None:
        """Let a name lead to this memory from now on, in the place of what it led to; OSError."""
        path = self.directory / name
        draft = path.with_name(f".{path.name}.{descriptor}")
        draft.symlink_to(f"{self._target}{descriptor}")
        try:
            draft.rename(path)
        except OSError:
            draft.unlink()
            raise
        self.held.add(descriptor)

    def tidy(self) -> None:
        """Give back what no name leads to. Looked at twice: a name that is being changed may be
        missed by one look."""
        named = self._named() | self._named()
        for descriptor in self.held - named:
            os.close(descriptor)
        self.held &= named

    def _named(self) -> set[int]:
        found = set()
        for folder in FOLDERS:
            try:
                paths = list((self.directory / folder).iterdir())
            except OSError:
                continue
            for path in paths:
                try:
                    target = str(path.readlink())
                except OSError:
                    continue
                if target.startswith(self._target):
                    found.add(int(target[len(self._target) :]))
        return found


def answer(holder: Holder, message: bytes, descriptors: list[int]) -> bytes:
    """Do what a message asks for: to hold what came with it, or just to tidy."""
    request = json.loads(message)
    problem = ""
    if descriptors:
        descriptor = descriptors[0]
        try:
            if NAME.fullmatch(request["name"]) is None:
                raise OSError(f"{request['name']} is no slot's name")
            holder.hold(request["name"], descriptor)
        except OSError as error:
            os.close(descriptor)
            problem = str(error)
    holder.tidy()
    return json.dumps({"token": request["token"], "pid": os.getpid(), "problem": problem}).encode()


def main() -> None:
    """`memory_holder.py DIRECTORY FD`: until the other end of the socket is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a scheduler sends them to all of a job
    holder = Holder(Path(sys.argv[1]))
    link = socket.socket(fileno=int(sys.argv[2]))
    link.settimeout(LOOK_S)
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 1)
        except TimeoutError:
            holder.tidy()
            continue
        if not message:
            return
        try:
            link.send(answer(holder, message, descriptors))
        except OSError:
            return


if __name__ == "__main__":
    main()
